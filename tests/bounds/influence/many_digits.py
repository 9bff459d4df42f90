"""The definition of an influence: passes of the reference with 40 digits, subtracted."""

import functools
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
    read = functools.partial(read, *written(model), arithmetic=DIGITS)
    found = {None: read(tokens)}
    for i, old in enumerate(tokens):
        for symbol in set(range(model.vocab_size)) - {int(old)}:
            changed = np.where(np.arange(len(tokens)) == i, symbol, tokens)
            found[i, symbol] = read(changed)
    return found


def exact_influences(passes, size):
    """Table [n, V, ...] of `size(before, after)` of all passes; NaN without one."""
    found = {at: size(passes[None], passes[at]) for at in passes.keys() - {None}}
    shape = len(passes[None]), 1 + max(symbol for _, symbol in found)
    table = np.full((*shape, *np.shape(next(iter(found.values())))), np.nan)
    for at, sizes in found.items():
        table[at] = np.asarray(sizes, float)
    return table


def distance(before, after):
    """Euclidean norm of a difference."""
    return MP.norm([b - a for a, b in zip(before, after, strict=True)])


def in_digits(row):
    return np.array([MP.mpf(float(x)) for x in row])
