"""The reverse pass: free again whatever was fixed needlessly.

A fixed bit is freed where the query's output is constant without it too, by an analysis
from scratch. Bits are tried in batches, which are halved where they fail.

Source: docs/restriction.md, section 2.
"""

import time
from collections.abc import Sequence

from bounds.restriction.analysis import TooManyBits, analyse
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.search import Report
from bounds.restriction.tabulate import Undecided
from jax_models import Transformer

# Bits that a row may depend on while bits are freed: tables double with each.
MOST_BITS = 10


def is_constant(model: Transformer, partial: PartialInput, query: int) -> bool:
    """Returns whether an analysis shows the query's output to be constant."""
    try:
        return analyse(model, partial, query, MOST_BITS).constant
    except (TooManyBits, Undecided):
        return False


def free_needless(
    model: Transformer,
    partial: PartialInput,
    given: PartialInput,
    query: int,
    seconds: float,
    report: Report | None = None,
) -> PartialInput:
    """Returns a partial input with those bits free that need not be fixed.

    Args:
        model: The transformer.
        partial: One under which the query's output is constant.
        given: What is fixed beforehand and stays fixed.
        query: The position that is read.
        seconds: After which no further batch is tried.
        report: Told of every batch that was freed.

    Returns:
        One that `partial` extends, with the same property.
    """
    end = time.monotonic() + seconds
    fixed = [i for i in given.free if partial.tokens[i] != FREE]
    size = max(1, len(fixed) // 2)
    waiting: list[Sequence[int]] = [
        fixed[k : k + size] for k in range(0, len(fixed), size)
    ]
    while waiting and time.monotonic() < end:
        batch = waiting.pop()
        freed = partial.release(batch)
        if is_constant(model, freed, query):
            partial = freed
            if report is not None:
                report("reverse pass", partial)
        elif len(batch) > 1:
            half = len(batch) // 2
            waiting += [batch[:half], batch[half:]]
    return partial
