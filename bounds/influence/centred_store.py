"""Keys and values of rows about a row near all of them, which drops out of all changes."""

import jax.numpy as jnp
from jax import Array

from jax_models.model.attending import (
    KeyStore,
    project_key_changes,
    project_keys,
    project_value_changes,
    project_values,
)
from jax_models.model.attention import Attention


def centred_store(
    attention: Attention, inputs: Array, positions: Array | None
) -> tuple[KeyStore, Array, Array]:
    """Returns keys and values of the rows u_w - c, the offset [h, v], and c [d].

    Keys are of the rows u_w themselves, with their bias, unless `shares_offsets`.

    A weighted mean of values is one of centred values plus the same offset, at every
    row that sees anything, so the offset drops out of all changes. Left in, its
    rounding would not: a large common part of the values would swamp them.
    """
    centre = common_part(inputs)
    keys = keys_about(attention, inputs, centre, inputs.shape[0], positions)
    values = project_value_changes(attention, inputs - centre)
    offset = project_values(attention, centre[None])[:, 0]
    return KeyStore(keys, values), offset, centre


def keys_about(
    attention: Attention,
    inputs: Array,
    centre: Array,
    length: int,
    positions: Array | None,
) -> Array:
    """Returns keys [h, k, e] as `centred_store` has them.

    Args:
        attention: the sublayer.
        inputs: any that it may read [k, d].
        centre: [d].
        length: n.
        positions: of the inputs [k]; None where keys are the same at all positions.
    """
    if shares_offsets(attention):
        return project_key_changes(attention, inputs - centre, length, positions)
    return project_keys(attention, inputs, length, positions)


def shares_offsets(attention: Attention) -> bool:
    """Whether a part that all keys share adds the same to all scores of a row.

    Softmax takes no notice of it then, and it is left out: it may be far larger than what
    scores differ by, and they would be rounded relative to it.
    """
    same = attention.scoring.bilinear and attention.linear_keys
    return same and not attention.weighting.hard


def common_part(rows: Array) -> Array:
    """Returns a row near all rows [d]: their mean where it is far larger than they differ.

    Any row would do. Elsewhere it is 0, which rounds nothing: values that are 0, or sums
    of whole numbers, stay what they are.
    """
    mean = rows.mean(axis=0)
    apart = jnp.abs(rows - mean).max(axis=0)
    return jnp.where(jnp.abs(mean) > 8 * apart, mean, 0)
