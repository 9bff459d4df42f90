"""Keys and values of rows about a centre near all rows, which drops out of changes."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_models.model.attending import (
    KeyStore,
    project_key_changes,
    project_keys,
    project_value_changes,
    project_values,
)
from jax_models.model.attention import Attention
from jax_models.run.perturbation import perturb


def centred_store(
    attention: Attention,
    inputs: Float[Array, "tokens width"],
    positions: Int[Array, "tokens"] | None,
) -> tuple[KeyStore, Float[Array, "heads d_v"], Float[Array, "width"]]:
    """Keys and values of the rows u_w - c, the offset of the values, and the centre c.

    Keys are of the rows u_w themselves, with their bias, unless `shares_offsets`.

    A weighted mean of values is one of centred values plus the same offset, at every
    row that sees anything, so the offset drops out of all changes. Left in, its
    rounding would not: a large common part of the values would swamp them.
    """
    centre = common_part(inputs, attention)
    keys = keys_about(attention, inputs, centre, inputs.shape[0], positions)
    values = perturb(project_value_changes(attention, inputs - centre))
    offset = project_values(attention, centre[None])[:, 0]
    return KeyStore(keys, values), offset, centre


def keys_about(
    attention: Attention,
    inputs: Float[Array, "keys width"],
    centre: Float[Array, "width"],
    length: int,
    # None where keys are the same at all positions.
    positions: Int[Array, "keys"] | None,
) -> Float[Array, "heads keys d_k"]:
    """Keys as in `centred_store`: of the inputs less the centre if `shares_offsets`."""
    if shares_offsets(attention):
        keys = project_key_changes(attention, inputs - centre, length, positions)
        return perturb(keys, positions)
    return project_keys(attention, inputs, length, positions)


def shares_offsets(attention: Attention) -> bool:
    """True where a part that all keys share adds the same to all scores of a row."""
    # Softmax ignores such a part, and it is left out: it may be far larger than the
    # differences of scores, and they would be rounded relative to it.
    same = attention.scoring.bilinear and attention.linear_keys
    return same and not attention.weighting.hard


def common_part(
    rows: Float[Array, "rows width"], attention: Attention
) -> Float[Array, "width"]:
    """A row near all rows: their mean where it far exceeds differences, else 0."""
    # Any row would do. 0 rounds nothing: zeros and sums of whole numbers stay exact.
    there = attention.sight.present(jnp.arange(rows.shape[0], dtype=jnp.int32))
    there = None if there is None else there[:, None]
    mean = rows.mean(axis=0, where=there)
    apart = jnp.abs(rows - mean).max(axis=0, where=there, initial=0)
    return jnp.where(jnp.abs(mean) > 8 * apart, mean, 0)
