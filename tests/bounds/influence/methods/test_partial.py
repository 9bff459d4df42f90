"""Partial passes: rows in windows and tiles of keys, and that all of them are needed."""

import functools

import numpy as np
import pytest

import bounds
from bounds.influence.build import build_request
from bounds.influence.methods import partial
from bounds.influence.methods.partial import PARTIAL, spans
from jax_models.run import blocks
from tests.bounds.influence.models import TOKENS, build


def windowed():
    return build({"num_layers": 3, "mask": "future", "window": 3}, seed=4)


def share_outside(model):
    """Share of a scan by partial passes that is more than its radius off."""
    ask = functools.partial(bounds.scan, model, TOKENS, rows="all")
    found, exact = (
        ask(method="partial"),
        ask(method="exhaustive", rounding="none").values,
    )
    there = ~np.isnan(exact)
    radius = np.maximum((found.upper - found.lower)[there] / 2, 1e-300)
    return (np.abs(found.values - exact)[there] - 1e-15 > radius).mean()


@pytest.mark.usefixtures("small_tiles")
def test_rows_in_windows_are_those_of_forward_passes():
    assert share_outside(windowed()) == 0


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("mask", ["none", "future"])
def test_rows_that_read_keys_tile_by_tile_are_those_of_forward_passes(mask, plant):
    plant(blocks, "MAX_KEY_TILE", 2)
    case = {"num_layers": 3, "mask": mask}
    assert share_outside(build(case, seed=4)) == 0


def later(*question):
    return [(first + 4, last) for first, last in spans(*question)]


def earlier(*question):
    return [(first, last - 4) for first, last in spans(*question)]


def lighter(*question, heads=partial.other_heads):
    moved, ties = heads(*question)
    return 0.999 * moved, ties


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("name", "fault"), [("spans", later), ("spans", earlier), ("other_heads", lighter)]
)
def test_a_row_that_is_not_formed_is_seen(name, fault, plant):
    plant(partial, name, fault)
    assert share_outside(windowed()) > 0.1


def test_under_a_causal_mask_the_cost_is_half():
    tokens = np.zeros(2048, int)
    full, causal = (build({"num_layers": 6, "mask": x}) for x in ("none", "future"))
    whole, half = (PARTIAL.cost(build_request(x, tokens)) for x in (full, causal))
    assert 0.45 * whole < half < 0.55 * whole
