"""A program whose rows may move is itself where they do not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.transformer import forward
from jax_models.run.perturbation import perturbation

SHAPE = {"num_heads": 2, "d_model": 4, "d_ff": 4, "vocab_size": 3}


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
