"""Hard attention in the kernel of two layers, interpreted on a CPU: `incremental` again."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import (
    METHODS,
    Problem,
    fused_hard,
    fused_kernel,
    fused_pairs,
)
from jax_models.model.mask import MASKS
from jax_models.weighting import AverageHardmax
from jax_models.weighting.cells import Level, to_cells
from tests.bounds.influence.fused_questions import (
    TYPES,
    disagreement,
    draw,
    noticed,
    on_cuda,
    traced,
)
from tests.bounds.influence.models import scaled_weights

pytestmark = pytest.mark.usefixtures("quick_compilation", "small_blocks")
N = 21
HARD = ("leftmost_hard", "rightmost_hard", "average_hard")
# Of each layer. A wide cell holds several keys, so that there is a tie to a row.
KINDS = {
    **{name: (name, name) for name in HARD},
    "softmax below": ("softmax", "average_hard"),
    "softmax above": ("rightmost_hard", "softmax"),
    "two kinds": ("average_hard", "leftmost_hard"),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 16 substitutions and chunks of 8 rows, so that there are several."""
    monkeypatch.setattr(fused_pairs, "ROWS", 8)
    monkeypatch.setattr(fused_kernel, "LANES", 16)


def mixed(kinds, width=None, seed=1, **options):
    """A model of two layers, each with a weighting of its own."""
    widths = (None if x == "softmax" else width for x in kinds)
    drawn = [
        draw(seed, weighting=x, tie_resolution=y, **options)
        for x, y in zip(kinds, widths, strict=True)
    ]
    layers = tuple(model.layers[k] for k, model in enumerate(drawn))
    return dataclasses.replace(drawn[0], layers=layers)


def met(model, method, **question):
    """The most worrying tie that a method met."""
    tokens = np.random.default_rng(N).integers(0, 3, N)
    problem = Problem.ask(model, tokens, **question)
    first, *others = (x.ties for x in METHODS[method].blocks(problem))
    for other in others:
        first = first.merge(other)
    return first


def cases():
    """Every weighting and mix under every mask, the types in turn."""
    for (k, mask), (i, kind) in itertools.product(enumerate(MASKS), enumerate(KINDS)):
        quick = (mask, kind) == ("future", "two kinds")
        marks = () if quick else pytest.mark.slow
        yield pytest.param(
            kind, mask, TYPES[1 - (k + i) % 2 * (not quick)], marks=marks
        )


@pytest.mark.parametrize(("kind", "mask", "dtype"), list(cases()))
def test_the_kernel_is_incremental_with_the_same_ties(kind, mask, dtype):
    """With one key in a cell, with many, and where positions tell no keys apart."""
    question = {"query": 0 if "past" in mask else N - 1, "include_query": True}
    for width, position in ((None, "sinusoidal"), (0.4, "sinusoidal"), (None, None)):
        model = mixed(KINDS[kind], width, mask=mask, dtype=dtype, position=position)
        # In float32 cells are narrower than what large scores are rounded by.
        for factor in (1.0, 30.0)[: 1 + ("64" in dtype)]:
            scaled = scaled_weights(model, query=factor, key=factor)
            assert disagreement(scaled, N, **question) < 1, (width, position, factor)
        found, expected = (met(model, x, **question) for x in ("fused", "incremental"))
        assert found.ambiguous == expected.ambiguous
        near = {"rel": 1e-3, "abs": 1e-5 if "32" in dtype else 1e-12}
        for field in ("gap", "spread"):
            one, two = (getattr(x, field) for x in (found, expected))
            assert one == pytest.approx(two, **near)
        if not found.ambiguous and found.gap < np.inf:  # the smallest gap is one row's
            assert found.row == expected.row
            assert found.scores == pytest.approx(expected.scores, **near)


SHAPES = {
    "odd": {"num_heads": 3, "d_model": 6, "d_ff": 5},
    "concat": {"num_heads": 1, "d_model": 4, "d_ff": 24, "combine": "concat"},
    "window": {"window": 4, "score": "dot_product"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("shape", SHAPES)
def test_so_it_is_in_other_shapes(shape, kind):
    for mask, width in (("none", 0.4), ("future", None)):
        model = mixed((kind, kind), width, mask=mask, **SHAPES[shape])
        assert disagreement(model, N) < 1


def test_cells_are_those_of_a_tile():
    """Of halves the even one, of what has no fraction itself."""
    halves = np.arange(-50, 51) / 2
    odd = [-0.5, 0.49999999999999994, 2.0**52 + 1, -(2.0**53), 1e300, -np.inf, np.inf]
    scores = jnp.asarray([*halves, *odd])
    for width in (1.0, 3.0):
        found = fused_hard.HardLanes(AverageHardmax(width)).cells(scores)
        np.testing.assert_array_equal(found, to_cells(scores, width))


# ------------------------------------------------------------ what would be noticed


def plant_other(monkeypatch):
    """Without the best key nothing is attended to."""
    right = fused_hard.HardLanes.replaced

    def wrong(self, summary):
        row, (attended, other) = right(self, summary)
        return row, (attended, 0 * other)

    monkeypatch.setattr(fused_hard.HardLanes, "replaced", wrong)


def plant_lower_cells(monkeypatch):
    """Cells are rounded down."""
    monkeypatch.setattr(
        fused_hard.HardLanes,
        "cells",
        lambda self, x: jnp.floor(x / self.weighting.resolution(x.dtype)),
    )


def plant_levels(monkeypatch):
    """The best cell is that of the last row."""
    right = fused_hard.best_levels

    def wrong(*given, known):
        return right(Level.empty(given[0].low), given[-1], known=known)

    monkeypatch.setattr(fused_hard, "best_levels", wrong)


def plant_values(monkeypatch):
    """What arrives in the place of a value has what moved of it twice."""
    right = fused_hard.replaced_value

    def wrong(factors, *about):
        return right((*factors[:2], 2 * factors[2]), *about)

    monkeypatch.setattr(fused_hard, "replaced_value", wrong)


PLANTED = {
    "cells": ("average_hard", plant_lower_cells),
    "levels": ("leftmost_hard", plant_levels),
    "levels of all": ("average_hard", plant_levels),
    "other": ("leftmost_hard", plant_other),
    "values": ("rightmost_hard", plant_values),
}


@pytest.mark.parametrize(
    "error",
    [
        "cells",
        *(pytest.param(x, marks=pytest.mark.slow) for x in PLANTED if x != "cells"),
    ],
)
def test_a_planted_error_is_noticed(error, monkeypatch):
    kind, plant = PLANTED[error]
    model = mixed((kind, kind), 0.4, mask="none", num_heads=1, d_model=4)
    assert noticed(model, 9, lambda: plant(monkeypatch))


def test_a_tie_that_is_not_noted_is_noticed(monkeypatch):
    shape = {"mask": "none", "num_heads": 1, "d_model": 4}
    model = mixed(("average_hard", "softmax"), seed=0, **shape)
    expected = met(model, "incremental")
    assert met(model, "fused").gap == pytest.approx(expected.gap)
    monkeypatch.setattr(fused_hard.HardLanes, "note", lambda *about: None)
    jax.clear_caches()
    assert met(model, "fused").gap > 2 * expected.gap
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weighting", HARD)
def test_it_lowers_for_cuda_without_a_card(weighting, dtype):
    shape = {"num_layers": 2, "num_heads": 3, "d_model": 12}
    with on_cuda():
        program = traced(mask="future", dtype=dtype, weighting=weighting, **shape)
        lowered = program.lower(lowering_platforms=("cuda",))
    assert "fused_pairs" in lowered.as_text()
