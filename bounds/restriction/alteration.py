"""Alteration: a random restriction, then repairs; the fallback of the greedy search.

Every free bit is fixed to a fair coin with probability q. Most lists then meet a row that
happens to be at its maximum, and depend on little; of every row that still depends on more
bits than the cap allows, the first entry of its list is fixed to its maximum, until none is
left. Several draws are made, and the one that leaves most bits free is taken: the expected
number of free bits is what the theorem bounds, so that some outcome has as many.

Source: docs/theory/hard-attention.md, section 5, Theorem 6; docs/restriction.md, section 2.
"""

import math
import time
from collections.abc import Sequence

import numpy as np

from bounds.restriction.closing import close
from bounds.restriction.partial_input import PartialInput
from bounds.restriction.search import Search
from jax_models import Transformer

# The share of bits that a draw fixes, one draw after another.
SHARES = (0.3, 0.5, 0.4, 0.6, 0.2, 0.7)


def draw(
    partial: PartialInput, share: float, generator: np.random.Generator
) -> PartialInput:
    """Returns a random restriction R of a partial input.

    Args:
        partial: The partial input.
        share: The probability q with which a free bit is fixed.
        generator: Randomness.
    """
    fixed = {
        position: int(generator.integers(2))
        for position in partial.free
        if generator.random() < share
    }
    return partial.fix(fixed)


def alter(
    model: Transformer,
    query: int,
    partial: PartialInput,
    caps: Sequence[int],
    draws: int,
    seed: int,
    seconds: float = math.inf,
) -> PartialInput:
    """Returns the partial input that leaves most bits free of several draws.

    Args:
        model: The transformer.
        query: The position that is read.
        partial: What is fixed beforehand.
        caps: For each layer but the last, the bits that a row may depend on.
        draws: How many draws.
        seed: Their seed.
        seconds: After which no further one is made.

    Returns:
        A partial input under which the query's output is constant.
    """
    generator = np.random.default_rng(seed)
    end = time.monotonic() + seconds
    found: list[PartialInput] = []
    for number in range(draws):
        if found and time.monotonic() > end:
            break
        share = SHARES[number % len(SHARES)]
        # Repairs are the rounds of the search, one first entry at a time.
        search = Search(model, query, draw(partial, share, generator), repair=True)
        close(search, *search.reduce(caps))
        found.append(search.partial)
    return max(found, key=lambda one: len(one.free))
