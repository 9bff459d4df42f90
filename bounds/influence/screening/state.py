"""What is known of all rows between two layers when one token is replaced.

Row j != i changes by a known vector and an unknown one of bounded norm. Row i, whose
change is not small, has a reference of its own: z, its row when the others have their
known changes; the rest of its change is unknown.

Source: docs/screened.md, section 1. Shapes: n rows, i substitutions.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

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

    known: Array  # [n, d, i], zero at row i
    unknown: Array  # [n, i], zero at row i
    own: Array  # [d, i] z - y_i
    own_unknown: Array  # [i]
    # Norms of what the last layer reads of the unknown changes, of its keys, values and
    # scores, where the layer before it says them: see `row_map.LastReads`. Zero at row i.
    reads: Array | None = None  # [n, 3 h, i]


@register
@dataclasses.dataclass(frozen=True)
class Inputs:
    """The same of what attention reads: the rows, or their norms under pre-norm."""

    change: Array  # [n, d, i] known changes, row i's included
    others: Array  # [n, d, i] the same without row i's
    unknown: Array  # [n, i] of all rows, row i's included
    defect: Array  # [n, i] what of it the norm's base derivative does not say
    here: Array  # [n, i] where row n is the replaced one


def read_inputs(layer: Layer, rows: Array, state: State, position: Array) -> Inputs:
    """Returns the changes of what attention reads.

    Args:
        layer: the layer.
        rows: its base input [n, d].
        state: the changes of those rows.
        position: the replaced positions [i].
    """
    everywhere = jnp.arange(rows.shape[0], dtype=jnp.int32)
    here = same_position(everywhere[:, None], position, rows.dtype)
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
    return Inputs(change, others, unknown, defect, here)


@register
@dataclasses.dataclass(frozen=True)
class MovedColumns:
    """Changes of all keys and values, and the norms of the unknown ones."""

    key: Array  # [h, n, e, i]
    value: Array  # [h, n, v, i]
    key_unknown: Array  # [h, n, i]
    value_unknown: Array  # [h, n, i]


def move_columns(
    attention: Attention, inputs: Inputs, norms: tuple[Array, Array]
) -> MovedColumns:
    """Returns the changes of keys and values.

    Args:
        attention: the sublayer.
        inputs: the changes of what it reads.
        norms: spectral norms of the key and the value maps of each head [h].
    """
    maps = (attention.key_by_head, attention.value_by_head)
    key, value = (
        jnp.einsum("hed,ndi->hnei", w, inputs.change, precision=HIGHEST) for w in maps
    )
    unknown = [norm[:, None, None] * inputs.unknown for norm in norms]
    return MovedColumns(key, value, *unknown)
