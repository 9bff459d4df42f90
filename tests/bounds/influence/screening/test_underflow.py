"""A row whose keys have all moved: weights that underflow at the base count once moved."""

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.screening.moved_row import (
    BaseRow,
    Unknown,
    bound_row,
    configure_row,
)
from bounds.influence.screening.state import Inputs, MovedColumns
from jax_models.model.attending import KeyStore, summarise
from jax_models.model.attention import Attention
from jax_models.weighting.softmax import Softmax


@pytest.mark.parametrize("gap", [10.0, 88.0, 95.0])
def test_a_column_whose_weight_underflowed_may_carry_the_row(gap):
    """In float32, a column e^-gap light at the base weighs 1/2 where scores are equal."""
    maps = [jnp.asarray([[[1.0, 0.0]]]), jnp.asarray([[[0.0, 1.0]]])]
    key, value = (x.astype(jnp.float32) for x in maps)
    attention = Attention(
        key, key, value, None, weighting=Softmax(), score="dot_product"
    )
    store = KeyStore(
        jnp.asarray([[[0.0], [-gap]]], jnp.float32),
        jnp.asarray([[[0.0], [1.0]]], jnp.float32),
    )
    at, query = jnp.asarray([0], jnp.int32), jnp.ones((1, 1, 1), jnp.float32)
    summary = summarise(attention, query, at, store)
    base = BaseRow(at, query, summary, jnp.zeros((1, 1, 1), jnp.float32))
    still = jnp.zeros((2, 2, 1), jnp.float32)
    unknown = jnp.asarray([[0.0], [1e-3]], jnp.float32)
    inputs = Inputs(still, still, unknown, jnp.zeros_like(unknown), unknown < 0)
    # The query turns to zero, so that all scores are.
    known = (attention, base, -query, store, inputs, at, 2)
    configuration = configure_row(*known)
    shift = 0.5 - 1 / (1 + np.exp(gap))
    np.testing.assert_allclose(configuration.heads, shift, rtol=1e-5)
    none, value = jnp.zeros((1, 2, 1), jnp.float32), unknown[None]
    moved = MovedColumns(still[None], still[None], none, value)
    by_value = Unknown(none[:, 0], none, value, none)
    bounds = bound_row(*known, configuration, moved, by_value)
    # The value of that column moves by 1e-3, its weight being 1/2.
    assert (np.asarray(bounds.moves) >= 0.5e-3 * (1 - 1e-5)).all()
    assert (np.asarray(bounds.turned) >= shift * 1e-3 * (1 - 1e-5)).all()
