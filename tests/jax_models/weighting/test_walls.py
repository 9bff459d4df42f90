"""Weights are formed once, and not once for each coordinate of a value."""

import jax
import jax.numpy as jnp

from jax_models.weighting import Softmax, Tile
from tests.jax_models.weighting.laws import moved_keys


def conditions(visible):
    """How many walls the compiler leaves in a tile whose keys all move."""
    softmax, index = Softmax(), jnp.arange(16, dtype=jnp.int32)

    def run(scores, values):
        seen = jnp.ones((16, 16), bool) if visible is None else visible(index)
        tile = Tile(scores, values, index, seen)
        moved = moved_keys(softmax, tile, 0.1 * scores, values)
        return softmax.read_change(softmax.lift_change(softmax.lift(tile), moved))

    shapes = (jax.ShapeDtypeStruct(x, jnp.float32) for x in ((2, 16, 16), (2, 16, 4)))
    return jax.jit(run).lower(*shapes).compile().as_text().count("conditional(")


def test_a_mask_that_hides_nothing_has_the_walls_of_one_that_hides():
    """Known ahead, all that is seen is a constant, and a condition on it none."""
    causal, by_a_number = (
        conditions(lambda at, offset=offset: at[None] + offset <= at[:, None])
        for offset in (0, -16)
    )
    assert conditions(None) == causal == by_a_number > 1
