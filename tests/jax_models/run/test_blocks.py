"""What is formed once, as a wall between a value and its uses."""

import chex
import jax
import jax.numpy as jnp
import pytest

from jax_models.run.blocks import formed_once


@pytest.mark.parametrize("when", [True, False])
def test_what_is_formed_once_is_the_function_or_zeros(when):
    def both(x, y):
        return {"sum": x + y, "first": (x,)}

    x, y = jnp.arange(3.0), jnp.ones(3)
    found = jax.jit(lambda w: formed_once(w, both, x, y))(jnp.asarray(when))
    expected = both(x, y) if when else {"sum": 0 * x, "first": (0 * x,)}
    chex.assert_trees_all_equal(found, expected)
