"""Models whose Lipschitz constant is known: attention that averages, and nothing else.

With query and key weights zero every row attends uniformly; with a feed-forward block of
zeros the output at the query is z_q + mean(O V z) + constant, so that K_n = |O V| / n for
every position but the query's, on every domain.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.architecture import small_model


def averaging_model() -> Any:
    """A uniformly attending model and |O V|."""
    model = small_model(7, dtype="float64")
    (layer,) = model.layers
    attention, block = layer.attention, layer.feed_forward
    none = jnp.zeros_like
    attention = dataclasses.replace(
        attention,
        query=none(attention.query),
        key=none(attention.key),
        query_bias=None,
        key_bias=None,
    )
    block = dataclasses.replace(block, w1=none(block.w1), w2=none(block.w2))
    layer = dataclasses.replace(layer, attention=attention, feed_forward=block)
    product = np.asarray(attention.output) @ np.asarray(attention.value[0])
    norm = np.linalg.svd(product, compute_uv=False)[0]
    return dataclasses.replace(model, layers=(layer,)), float(norm)
