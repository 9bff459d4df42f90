"""Maxima are kept block by block, as from the whole list of influences at once."""

import tracemalloc

import numpy as np
import pytest

from bounds.influence import choice, compute
from bounds.influence.maxima import Maxima
from bounds.influence.method import Method
from bounds.influence.result import Block
from bounds.influence.substitution import list_substitutions

N, V = 7, 4
TOKENS = np.random.default_rng(0).integers(0, V, N)
PAIRS = list_substitutions(TOKENS, V, query=3)


def gathered(value, radius, size, dense=True):
    """The maxima of blocks of `size` substitutions."""
    maxima = Maxima(PAIRS, dense)
    for start in range(0, len(PAIRS), size):
        part = slice(start, start + size)
        maxima.add(Block(value[part], radius[part], None))
    return maxima


@pytest.mark.parametrize("size", [1, 2, 3, 5, len(PAIRS)])
@pytest.mark.parametrize("kind", ["drawn", "equal", "zeros", "wide"])
def test_any_blocks_give_the_maxima_of_the_whole(kind, size):
    rng = np.random.default_rng(1)
    value = rng.integers(0, 4, len(PAIRS)) / 4  # so that there are equal ones
    radius = rng.random(len(PAIRS))
    if kind == "equal":
        value[:] = 0.5
    if kind == "zeros":
        value[:], radius[:] = 0.0, 0.0
    if kind != "wide":
        radius *= 1e-3
    found = gathered(value, radius, size)
    lower, upper = np.maximum(value - radius, 0), value + radius
    for table, ends in ((found.lower, lower), (found.upper, upper)):
        np.testing.assert_array_equal(table, PAIRS.scatter(ends))
    assert (found.max, found.zeros) == (value.max(), (lower == 0).sum())
    assert found.best == np.flatnonzero(value == value.max())[0]
    assert (found.max_lower, found.max_upper) == (lower.max(), upper.max())
    for i in range(N):
        at = PAIRS.position == i
        if i == 3:
            assert not at.any()
            assert np.isnan([found.position_lower[i], found.position_upper[i]]).all()
            assert found.position_symbol[i] == -1
            continue
        assert found.position_lower[i] == lower[at].max()
        assert found.position_upper[i] == upper[at].max()
        first = np.flatnonzero(value[at] == value[at].max())[0]
        assert found.position_symbol[i] == PAIRS.symbol[at][first]


def test_no_block_is_no_influence():
    empty = Maxima(PAIRS, dense=False)
    assert (empty.max, empty.max_lower, empty.max_upper, empty.best) == (0, 0, 0, None)
    assert np.isnan(empty.position_upper).all()


def test_every_pair_is_listed_once_in_order():
    expected = [(i, s) for i in range(N) for s in range(V) if i != 3 and s != TOKENS[i]]
    assert [PAIRS[k] for k in range(len(PAIRS))] == expected
    assert PAIRS.position.dtype == PAIRS.symbol.dtype == np.int32


def constant_influences(problem):
    """Blocks of 4096 influences, all 1."""
    for start in range(0, problem.position.size, 4096):
        count = problem.position[start : start + 4096].size
        yield Block(np.ones(count), np.zeros(count), None)


def test_position_maxima_take_no_memory_for_pairs_but_their_list(monkeypatch):
    """Two 32-bit integers per pair, and less than one more for finding them."""
    method = Method("fixed", lambda _: None, lambda _: 1.0, constant_influences)
    monkeypatch.setattr(choice, "_ALL", (method,))
    n, v = 4096, 256
    tokens = np.zeros(n, np.int64)
    peaks = {}
    for keep in ("position_max", "pairs"):
        tracemalloc.start()
        result = compute.compute_influence(
            lambda tokens: tokens, tokens, vocab_size=v, keep=keep
        )
        peaks[keep] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.substitutions == (n - 1) * (v - 1)
        assert result.max == 1.0
    tables = 2 * 8 * n * v
    assert peaks["position_max"] < 12 * n * v
    assert peaks["pairs"] < 12 * n * v + tables
