"""Inputs move by sixteen roundings; what was equal stays equal where it has to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.rounding.moved_inputs import RUNS, move_alike, move_apart, unit_of
from jax_models.run.perturbation import UNITS
from tests.bounds.influence.models import build

TREE = {
    "weight": jnp.asarray(
        np.random.default_rng(0).standard_normal((20, 30)), "float32"
    ),
    "scalar": jnp.float32(3),
    "number": 0.5,
    "count": jnp.arange(4),
    "flag": True,
    "name": None,
}


@pytest.mark.parametrize("move", [move_alike, move_apart])
def test_floats_move_by_as_much_and_all_else_stays(move):
    moved = move(TREE, 1)
    step = UNITS * 2.0**-24
    for name in ("weight", "scalar"):
        before, after = (np.asarray(x[name]) for x in (TREE, moved))
        assert after.dtype == before.dtype
        assert after.shape == before.shape
        up, down = (before * np.float32(x) for x in (1 + step, 1 - step))
        assert ((after == up) | (after == down)).all()
    # A number counts as what it stands beside.
    assert isinstance(moved["number"], float)
    assert abs(moved["number"] / 0.5 - 1) == pytest.approx(step)
    assert (moved["count"] == TREE["count"]).all()
    assert moved["flag"] is True
    assert jax.tree.structure(moved) == jax.tree.structure(TREE)


def test_about_half_go_either_way_and_each_run_otherwise():
    before = np.asarray(TREE["weight"])
    ups = [
        np.asarray(move_apart(TREE, run)["weight"]) > before for run in range(RUNS + 1)
    ]
    for one in ups:
        assert 240 < (one ^ (before < 0)).sum() < 360
    assert len({x.tobytes() for x in ups}) == len(ups)


def test_equal_entries_move_alike_or_apart():
    tree = [jnp.ones((50,)), jnp.ones((50,))]
    for run in range(1, RUNS + 1):
        alike = move_alike(tree, run)
        assert all(np.unique(x).size == 1 for x in alike)
        assert all(np.unique(x).size == 2 for x in move_apart(tree, run))
    # Not of two arrays: each has a hash of its own.
    runs = [move_alike(tree, run) for run in range(1, 20)]
    assert any(x[0][0] != x[1][0] for x in runs)


def test_a_model_keeps_its_structure_so_that_nothing_is_compiled_anew():
    options = {"num_layers": 1, "temperature": "inverse_log", "dtype": "float32"}
    model = build(options)
    moved = move_alike(model, 1)

    def kinds(tree):
        return [jax.typeof(x) for x in jax.tree.leaves(tree)]

    assert jax.tree.structure(moved) == jax.tree.structure(model)
    assert kinds(moved) == kinds(model)
    assert unit_of(model) == 2.0**-24
