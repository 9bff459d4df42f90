"""The definition of an influence: passes of the reference with 40 digits, subtracted."""

from typing import Any

import mpmath
import numpy as np

from benchmarks import reference
from tests.written import written

MP: Any = mpmath.MPContext()
MP.dps = 60
DIGITS = reference.multiprecision(40)


def every_pass(read, model, tokens):
    """What is read of the input, at None, and of each substitution."""
    config, tensors = written(model)
    found = {None: read(config, tensors, tokens, DIGITS)}
    for i, old in enumerate(tokens):
        for symbol in set(range(model.vocab_size)) - {int(old)}:
            changed = np.where(np.arange(len(tokens)) == i, symbol, tokens)
            found[i, symbol] = read(config, tensors, changed, DIGITS)
    return found


def exact_influences(passes, watched):
    """Norms of the changes [n, V] of what is watched of every pass."""
    base, n = watched(passes[None]), len(passes[None])
    table = np.full(
        (n, 1 + max(symbol for _, symbol in passes.keys() - {None})), np.nan
    )
    for at in passes.keys() - {None}:
        moved = watched(passes[at]) - base
        table[at] = float(MP.sqrt(sum(x * x for x in moved)))
    return table
