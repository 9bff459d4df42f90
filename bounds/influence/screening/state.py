"""Changes of all rows between two layers when one token is replaced.

Row j != i changes by a known vector and an unknown one of bounded norm. Row i, whose
change is not small, has a reference of its own: z, its row when the others have their
known changes; the rest of its change is unknown.

Source: docs/screened.md, section 1.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.screening.defect import deviations, norm_defect
from bounds.influence.screening.row_map import carry_columns
from bounds.readings.rules import norm_before
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.weighting.base import same_position

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class State:
    """Changes of the rows that a layer reads."""

    known: Float[Array, "rows width substitutions"]  # zero at row i
    unknown: Float[Array, "rows substitutions"]  # zero at row i
    own: Float[Array, "width substitutions"]  # z - y_i
    own_unknown: Float[Array, "substitutions"]
    position: Int[Array, "substitutions"]  # i
    # Norms of the unknown changes of the last layer's keys, values and scores
    # (`LastReads`), formed by the layer before it alone. Zero at row i.
    reads: Float[Array, "rows reads substitutions"] | None = None


@register
@dataclasses.dataclass(frozen=True)
class Inputs:
    """Changes of attention's input: the rows, or their norms under pre-norm."""

    change: Float[Array, "rows width substitutions"]  # known, row i's included
    others: Float[Array, "rows width substitutions"]  # known, zero at row i
    unknown: Float[Array, "rows substitutions"]  # of all rows, row i's included
    defect: Float[Array, "rows substitutions"]  # part beyond the norm's base derivative
    here: Bool[Array, "rows substitutions"]  # True where the row is the replaced one
    position: Int[Array, "substitutions"]


def read_inputs(layer: Layer, rows: Float[Array, "rows width"], state: State) -> Inputs:
    """Changes of attention's input."""
    everywhere = jnp.arange(rows.shape[0], dtype=jnp.int32)
    here = same_position(everywhere[:, None], state.position, rows.dtype)
    change = jnp.where(here[:, None], state.own, state.known)
    unknown = jnp.where(here, state.own_unknown, state.unknown)
    defect = jnp.zeros_like(unknown)
    norm = norm_before(layer)
    if norm is not None:
        deviation = deviations(norm, rows)
        size = jnp.sqrt((change * change).sum(axis=1))
        defect, unknown = norm_defect(norm, deviation[:, None], size, unknown)
        change = carry_columns(norm, (rows,), change)
    others = jnp.where(here[:, None], 0, change)
    return Inputs(change, others, unknown, defect, here, state.position)


@register
@dataclasses.dataclass(frozen=True)
class MovedColumns:
    """Changes of all keys and values, and the norms of the unknown ones."""

    key: Float[Array, "heads columns d_k substitutions"]
    value: Float[Array, "heads columns d_v substitutions"]
    key_unknown: Float[Array, "heads columns substitutions"]
    value_unknown: Float[Array, "heads columns substitutions"]


def move_columns(
    attention: Attention,
    inputs: Inputs,
    norms: tuple[Float[Array, "heads"], Float[Array, "heads"]],
) -> MovedColumns:
    """Changes of keys and values; `norms` are the spectral norms of their maps."""
    maps = (attention.key_by_head, attention.value_by_head)
    key, value = (
        jnp.einsum("hed,ndi->hnei", w, inputs.change, precision=HIGHEST) for w in maps
    )
    unknown = [norm[:, None, None] * inputs.unknown for norm in norms]
    return MovedColumns(key, value, *unknown)
