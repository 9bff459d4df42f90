"""Rows move by sixteen roundings where a program says so, and nowhere else."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.transformer import forward
from jax_models.run.perturbation import UNITS, perturb, perturbation

pytestmark = pytest.mark.usefixtures("quick_compilation")
SHAPE = {"num_heads": 2, "d_model": 4, "d_ff": 4, "vocab_size": 3}


@functools.partial(jax.jit, static_argnames="alike")
def twice(rows, run, alike=False):
    with perturbation(run, alike):
        return perturb(rows), perturb(rows)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_every_entry_moves_by_as_much_up_or_down(dtype):
    rows = jnp.asarray(np.random.default_rng(0).standard_normal((40, 25)), dtype)
    step = UNITS * float(jnp.finfo(dtype).eps) / 2
    up, down = rows * (1 + step), rows * (1 - step)
    seen = []
    for run in range(1, 5):
        found = [np.asarray(x) for x in twice(rows, jnp.uint32(run))]
        for one in found:
            assert ((one == up) | (one == down)).all()
            assert 400 < (one == up).sum() < 600
            seen.append(one)
    # No two runs, and no two places in the program, have the same signs.
    assert len({x.tobytes() for x in seen}) == len(seen)


def test_equal_entries_move_apart_in_a_row_and_where_positions_are_told():
    found, _ = twice(jnp.ones((100,)), jnp.uint32(1))
    assert len(set(np.asarray(found).tolist())) == 2

    @jax.jit
    def told(rows, positions, run):
        with perturbation(run, equal_alike=False):
            return perturb(rows, positions)

    rows, at = jnp.ones((2, 100, 3)), jnp.arange(100)
    found = told(rows, at, jnp.uint32(1))
    assert len({x.tobytes() for x in np.asarray(found[0])}) == 8
    # Signs go with the positions, whichever others are formed beside them.
    some = told(rows[:, :10], at[40:50], jnp.uint32(1))
    np.testing.assert_array_equal(some, found[:, 40:50])


def test_equal_entries_move_alike_where_ties_are_to_stay():
    rows = jnp.asarray(np.random.default_rng(0).integers(0, 9, (50, 4)) / 7)
    for run in range(1, 5):
        one, other = twice(rows, jnp.uint32(run), alike=True)
        assert (one == other).all()
        pairs = {
            (x, y)
            for x, y in zip(rows.ravel().tolist(), one.ravel().tolist(), strict=True)
        }
        assert len(pairs) == 9


def test_an_entry_that_changes_moves_anew():
    """Or two passes that are subtracted would be moved alike, and their roundings not."""
    rows = jnp.ones((100,))
    one, _ = twice(rows, jnp.uint32(1))
    other, _ = twice(rows * (1 + 2**-40), jnp.uint32(1))
    assert 20 < ((one > 1) != (other > 1 + 2**-40)).sum() < 80


@pytest.mark.parametrize("norm", ["none", "pre"])
def test_run_0_is_the_program_itself_to_the_bit(norm):
    model = jm.random_transformer(
        jax.random.key(0), num_layers=2, layer_norm=norm, dtype="float64", **SHAPE
    )
    tokens = jnp.asarray([0, 2, 1, 1, 0])

    @jax.jit
    def run(model, tokens, run):
        with perturbation(run, equal_alike=False):
            return forward(model, tokens)[0]

    plain = jax.jit(lambda model, tokens: forward(model, tokens)[0])(model, tokens)
    assert (run(model, tokens, jnp.uint32(0)) == plain).all()
    apart = np.abs(run(model, tokens, jnp.uint32(1)) - plain)
    assert np.median(apart) > 0
    assert apart.max() < 1e-12
    program: Any = run
    assert program._cache_size() == 1
