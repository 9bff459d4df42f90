"""Partial passes: which rows are formed, in which blocks, and that all of them are needed.

That they are the definition is held by the laws of influences and of scans, in small tiles.
"""

import dataclasses
import functools

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence.build import build_request
from bounds.influence.methods import partial
from bounds.influence.methods.partial import PARTIAL, spans
from jax_models.model.mask import SIGHTS, Sight
from jax_models.run import blocks
from tests.bounds.influence.models import TOKENS, build

pytestmark = pytest.mark.usefixtures("quick_compilation")
N = 9


def all_sights():
    yield from SIGHTS.values()
    for sight in SIGHTS.values():
        for window in (1, 2, 4):
            yield dataclasses.replace(sight, window=window)


def linked(sight):
    """Which rows [N, N] a row's next one depends on: those it sees, and itself."""
    at = np.arange(N)
    return np.asarray(sight.visible(at[:, None], at)) | np.eye(N, dtype=bool)


def formed(sights, position, row):
    """Which rows of every level lie on a way from a position to a watched row."""
    moved, read = [np.arange(N) == position], [np.arange(N) == row]
    for sight in sights:
        moved.append(linked(sight) @ moved[-1])
    for sight in reversed(sights):
        read.append(linked(sight).T @ read[-1])
    return [a & b for a, b in zip(moved, reversed(read), strict=True)]


def test_spans_are_the_rows_between_what_moves_and_what_is_watched():
    rng, kinds = np.random.default_rng(0), list(all_sights())
    exact = 0
    for _ in range(400):
        sights = [kinds[i] for i in rng.integers(0, len(kinds), rng.integers(1, 4))]
        position, row = (int(x) for x in rng.integers(0, N, 2))
        found = spans(sights, N, (position, position), (row, row))
        every = np.arange(N)
        of_all = spans(sights, N, (every, every), (row, row), np.minimum)
        assert found == [(a[position], b[position]) for a, b in of_all]
        for (first, last), wanted in zip(
            found, formed(sights, position, row), strict=True
        ):
            among = np.flatnonzero(wanted)
            if among.size:
                assert 0 <= first <= among[0]
                assert among[-1] <= last < N
                exact += (first, last) == (among[0], among[-1])
    assert exact > 600  # of what is not empty, all but some strict windows


def windowed(num_layers=3):
    """A causal model whose rows see three positions."""
    model = build({"num_layers": num_layers, "mask": "future"}, seed=4)
    sight = Sight(after=False, window=3)
    layers = tuple(
        dataclasses.replace(x, attention=with_window(x.attention, sight))
        for x in model.layers
    )
    return dataclasses.replace(model, layers=layers)


def with_window(attention, sight):
    attention = dataclasses.replace(attention, window=sight.window)
    assert attention.sight == sight
    return attention


@functools.cache
def by_passes(make):
    """The model, and how much every row moves with every substitution [n, V, n]."""
    model = make()
    base = np.asarray(jm.apply(model, TOKENS))
    table = np.full((TOKENS.size, model.vocab_size, TOKENS.size), np.nan)
    for i, token in enumerate(TOKENS):
        for symbol in {*range(model.vocab_size)} - {int(token)}:
            changed = np.where(np.arange(TOKENS.size) == i, symbol, TOKENS)
            moved = np.asarray(jm.apply(model, changed)) - base
            table[i, symbol] = np.linalg.norm(moved, axis=-1)
    return model, table


def shares_outside(make):
    """The share of a scan by partial passes that is more than its radius off."""
    model, exact = by_passes(make)
    found = bounds.scan(model, TOKENS, rows="all", method="partial")
    there = ~np.isnan(exact)
    radius = np.maximum((found.upper - found.lower)[there] / 2, 1e-300)
    return (np.abs(found.values - exact)[there] - 1e-15 > radius).mean()


@pytest.mark.usefixtures("small_tiles")
def test_rows_in_windows_are_those_of_forward_passes():
    assert shares_outside(windowed) == 0


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("mask", ["none", "future"])
def test_rows_that_read_keys_tile_by_tile_are_those_of_forward_passes(mask, plant):
    plant(blocks, "MAX_KEY_TILE", 2)
    case = {"num_layers": 3, "mask": mask}
    assert shares_outside(lambda: build(case, seed=4)) == 0


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("fault", ["later", "earlier", "column"])
def test_a_row_that_is_not_formed_is_seen(fault, plant):
    true_heads = partial.other_heads

    def later(*question):
        return [(first + 4, last) for first, last in spans(*question)]

    def earlier(*question):
        return [(first, last - 4) for first, last in spans(*question)]

    def column(*question):
        moved, ties = true_heads(*question)
        return 0.999 * moved, ties

    if fault == "column":
        plant(partial, "other_heads", column)
    else:
        plant(partial, "spans", {"later": later, "earlier": earlier}[fault])
    assert shares_outside(windowed) > 0.1


@pytest.mark.parametrize(
    ("mask", "length", "count"),
    [
        *(("none", 100, x) for x in (1, 33, 1000)),
        *(("future", 300, x) for x in (19, 64)),
    ],
)
def test_blocks_are_even(mask, length, count):
    model = build({"num_layers": 3, "mask": mask, "vocab_size": 30})
    tokens = np.zeros(length, int)
    some = np.arange(length)[: -(-count // 29)]
    request = build_request(model, tokens, positions=some, query=length - 1)
    request = dataclasses.replace(request, pairs=request.pairs.only(slice(0, count)))
    (part,) = partial._parts(request)
    run = -(-count // part.batch) * part.batch
    assert part.batch * length <= 1.2 * partial.ROWS_PER_BLOCK
    assert part.batch % part.options["tiling"][0] == 0
    assert count <= run <= 1.25 * count + 3


def test_under_a_causal_mask_the_cost_is_half():
    tokens = np.zeros(2048, int)
    full, causal = (build({"num_layers": 6, "mask": x}) for x in ("none", "future"))
    whole, half = (PARTIAL.cost(build_request(x, tokens)) for x in (full, causal))
    assert 0.45 * whole < half < 0.55 * whole
