"""What is watched at the query: the final activation, or the logits.

Shapes: d model width, c = d or the number of classes.
"""

import jax.numpy as jnp
from jax import Array

from jax_models.model.rows import linear
from jax_models.model.transformer import Transformer


def change_target(
    model: Transformer, output: Array, change: Array, target: str
) -> Array:
    """Returns the change of the target [..., c].

    Args:
        model: a transformer.
        output: the query row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: "activation" or "logits".
    """
    if model.final_norm is not None:
        change = model.final_norm.change(output, change)
    if target == "logits":
        assert model.readout is not None
        change = linear(change, model.readout.weight)
    return change


def target_map(model: Transformer, target: str) -> Array:
    """Returns the linear map from the normed final activation to the target [c, d]."""
    if target == "logits":
        assert model.readout is not None
        return model.readout.weight
    return jnp.eye(model.width, dtype=model.dtype)
