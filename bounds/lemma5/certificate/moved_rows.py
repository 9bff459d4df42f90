"""Changes of the rows of a layer's input under substitutions.

The change of row w from the base, the evaluation on the unchanged input, is within
radius[w] of a known centre. The centre is a change, never a difference of two
activations. Substitutions are the last axis.
"""

import dataclasses
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bounds.lemma5.certificate.norm_gain import (
    Radii,
    Rows,
    norm_gain,
    norm_rounding,
)
from bounds.lemma5.certificate.order import least, times
from bounds.readings import norm_before
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Norm

Slots: TypeAlias = Int[Array, "substitutions"]
Moves: TypeAlias = Float[Array, "substitutions width"]
Sizes: TypeAlias = Float[Array, "substitutions"]


@pytree
class MovedRows:
    """Centres and radii of the changes of all rows."""

    position: Slots  # the substituted positions
    centre: Float[Array, "tokens width substitutions"]
    radius: Float[Array, "tokens substitutions"]

    def take(self, at: Slots) -> tuple[Moves, Sizes]:
        """Centre and radius of the change of row at[p], for each substitution p."""
        slot = jnp.arange(self.radius.shape[1], dtype=jnp.int32)
        # Integer indices on both sides of a slice put the substitutions first.
        return self.centre[at, :, slot], self.radius[at, slot]

    def substituted(self) -> "OwnMove":
        """Centre and radius of the change of each substitution's own row."""
        return OwnMove(self.position, *self.take(self.position))


@pytree
class OwnMove:
    """Centre and radius of the change of the substituted row i, for each substitution."""

    position: Slots
    centre: Moves
    radius: Sizes


def read_inputs(
    layer: Layer,
    rows: Float[Array, "tokens width"],
    moved: MovedRows,
    base: Float[Array, "tokens"],
) -> MovedRows:
    """Changes of the rows that attention reads: `moved`, carried through a norm before it."""
    norm = norm_before(layer)
    if norm is None:
        return moved
    change = moved.centre.swapaxes(1, 2)
    # Radii of the base input rows, shared by all substitutions.
    base = base[:, None]
    centre, radius = behind_norm(norm, rows[:, None], change, moved.radius, base)
    return MovedRows(moved.position, centre.swapaxes(1, 2), radius)


def behind_norm(
    norm: Norm, rows: Rows, centre: Rows, radius: Radii, base: Radii
) -> tuple[Rows, Radii]:
    """Centre and radius of changes after a norm; `base` are the radii of the base `rows`."""
    gain = norm_gain(norm, rows + centre, radius + base)
    # A row that is not off at all stays so, even where the gain is unbounded; two outputs
    # of a norm are at most 2 max|scale| sqrt(d) apart.
    carried = least(times(gain, radius), 2 * norm.largest * rows.shape[-1] ** 0.5)
    rounding = norm_rounding(norm, rows, centre, base)
    return norm.change(rows, centre), carried + rounding


@jax.jit
def put_row(moved: MovedRows, at: Slots, centre: Moves, radius: Sizes) -> MovedRows:
    """`moved` with centre and radius of row at[p] replaced, for each substitution p."""
    slot = jnp.arange(moved.radius.shape[1], dtype=jnp.int32)
    return dataclasses.replace(
        moved,
        centre=moved.centre.at[at, :, slot].set(centre),
        radius=moved.radius.at[at, slot].set(radius),
    )
