"""Moved rows: what is known of every row of a layer's input under a substitution.

The change of row w is within radius[w] of a known centre. The centre is a change, never
a difference of two activations. Substitutions are the last axis.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.lemma5.certificate.norm_gain import (
    norm_gain,
    norm_rounding,
    vector_norms,
)
from bounds.lemma5.certificate.order import least, times
from bounds.readings.rules import norm_before
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.rows import Norm


@register
@dataclasses.dataclass(frozen=True)
class MovedRows:
    """Centres and radii of the changes of all rows under p substitutions."""

    position: Array  # [p] the substituted positions
    centre: Array  # [n, d, p]
    radius: Array  # [n, p]

    def take(self, at: Array) -> tuple[Array, Array]:
        """Returns centre [p, d] and radius [p] of one row per substitution, at [p]."""
        slot = jnp.arange(self.radius.shape[1], dtype=jnp.int32)
        return self.centre[at, :, slot], self.radius[at, slot]

    def substituted(self) -> "OwnMove":
        """Returns what is known of the substituted rows."""
        return OwnMove(self.position, *self.take(self.position))


@register
@dataclasses.dataclass(frozen=True)
class OwnMove:
    """Centres and radii of the change of row i alone under p substitutions."""

    position: Array  # [p]
    centre: Array  # [p, d]
    radius: Array  # [p]


def sizes(rows: Array) -> Array:
    """Returns the norms of [n, d, p] over d, [n, p]."""
    return vector_norms(rows, axis=1)


def read_inputs(layer: Layer, rows: Array, moved: MovedRows, base: Array) -> MovedRows:
    """Returns what is known of the attention's inputs: behind a norm in front of it.

    Args:
        layer: the layer.
        rows: its base input [n, d].
        moved: what is known of that input.
        base: radii of the base input [n].
    """
    norm = norm_before(layer)
    if norm is None:
        return moved
    change = moved.centre.swapaxes(1, 2)
    centre, radius = behind_norm(
        norm, rows[:, None], change, moved.radius, base[:, None]
    )
    return MovedRows(moved.position, centre.swapaxes(1, 2), radius)


def behind_norm(
    norm: Norm,
    rows: Array,
    centre: Array,
    radius: Array,
    base: Array,
) -> tuple[Array, Array]:
    """Returns centre and radius of changes behind a layer norm.

    Args:
        norm: the layer norm.
        rows: base rows, broadcastable to the centres.
        centre: of the changes [..., d].
        radius: around them [...].
        base: radii of the base rows, broadcastable.
    """
    gain = norm_gain(norm, rows + centre, radius + base)
    # A row that is not off at all stays so, even where the gain is unbounded.
    carried = least(times(gain, radius), 2 * norm.largest * rows.shape[-1] ** 0.5)
    rounding = norm_rounding(norm, rows, centre, base)
    return norm.change(rows, centre), carried + rounding


@jax.jit
def put_row(moved: MovedRows, at: Array, centre: Array, radius: Array) -> MovedRows:
    """Returns the rows with row at[p] of each substitution replaced."""
    slot = jnp.arange(moved.radius.shape[1], dtype=jnp.int32)
    return dataclasses.replace(
        moved,
        centre=moved.centre.at[at, :, slot].set(centre),
        radius=moved.radius.at[at, slot].set(radius),
    )
