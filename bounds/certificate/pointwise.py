"""Pointwise parts of a layer: a centre's exact change, its rounding, and Jacobians.

A row's change goes from the residual sum through norms and block as a change, stage by
stage, since every stage needs a radius (`pointwise_radius`). Arrays broadcast over
leading axes [...].
"""

import dataclasses
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from bounds.certificate.activation_ball import step_strays
from bounds.certificate.base_radius import RowRadius
from bounds.certificate.layer_constants import LayerConstants
from bounds.certificate.norm_gain import (
    norm_jacobian,
    norm_rounding,
    vector_norms,
)
from bounds.influence.pointwise import KEPT, RowBase
from bounds.matrix_norm import spectral_norms
from bounds.rounding import term_roundoff
from jax_models.layer import Layer
from jax_models.pytree import register

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class RowNorms:
    """Norms of the Jacobians at base rows; the fields a layer lacks are None."""

    whole: Array | None  # [...] of the map from the residual sum to the output
    block: Array  # [...] of the block (with its residual, except under pre-norm)
    heads: Array | None  # [..., h] of the block in each concatenated head
    norm1: Array | None  # [...]
    norm2: Array | None


# Changes of a layer's rows by their names, `KEPT` ones and the output "out".
Moved: TypeAlias = dict[str, Array]


def carry(layer: Layer, base: RowBase, change: Array, heads: Array) -> Moved:
    """Returns the changes of the layer's rows.

    Args:
        layer: the layer.
        base: base quantities, broadcastable to [..., d].
        change: of the layer's input rows [..., d].
        heads: of the concatenated head outputs [..., h v].
    """
    moved = layer.writes.change(base.rows, {"y": change, "heads": heads})
    return {name: moved[name] for name in (*KEPT, "out") if name in moved}


def move_base(base: RowBase, moved: Moved) -> tuple[RowBase, Moved]:
    """Returns the base quantities after a change, and no change at all."""
    rows = {name: row + moved[name] for name, row in base.rows.items()}
    return RowBase(rows), jax.tree.map(jnp.zeros_like, moved)


@register
@dataclasses.dataclass(frozen=True)
class Rounding:
    """Rounding of a centre at the stages of the block; None where there is no stage."""

    read: Array  # [...] of a preactivation, over the norm of its row of W1
    entered: Array | None  # [...] behind the norm in front of the block
    output: Array  # [...] behind the block (post: in front of the last norm)
    last: Array | None  # [...] behind the last norm (post)


def carry_rounding(
    layer: Layer,
    constants: LayerConstants,
    base: RowBase,
    carried: Moved,
    change: Array,
    heads: Array,
    known: RowRadius,
) -> Rounding:
    """Returns how far `carry` is from the change of the true rows, stage by stage.

    A product with W1, the activation's change and a product with W2 round by the sum of
    |W2[:, u]||W1[u, :]| times the size of what enters, whatever cancels in them. True
    preactivations within their radius of the computed ones change an activation's step
    by what `step_strays` says.

    Args:
        layer: the layer.
        constants: its constants.
        base: as in `carry`.
        carried: its result.
        change: as in `carry`.
        heads: as in `carry`.
        known: radii of the base rows, broadcastable.
    """
    block = layer.feed_forward
    steps = sum(block.w1.shape) + block.bend.roundings
    roundoff, within = (
        term_roundoff(steps),
        term_roundoff(block.w1.shape[1]),
    )
    strays = step_strays(
        block.bend,
        base.preactivation,
        carried["preactivation"],
        known.preactivation,
    )
    strays = (strays * jnp.sqrt((block.w2 * block.w2).sum(axis=0))).sum(axis=-1)
    if layer.combine == "concat":
        read = vector_norms(change) + vector_norms(heads)
        terms = vector_norms(change) + constants.flow * read
        return Rounding(within * read, None, roundoff * terms + strays, None)
    stream = carried["entered"] if layer.layer_norm == "post" else carried["summed"]
    entering = vector_norms(carried.get("entered", carried["summed"]))
    terms, read = vector_norms(stream) + constants.flow * entering, within * entering
    output = roundoff * terms + strays
    if layer.layer_norm == "none":
        return Rounding(read, None, output, None)
    assert layer.norm1 is not None and layer.norm2 is not None
    assert known.summed is not None
    if layer.layer_norm == "pre":
        entered = norm_rounding(
            layer.norm2,
            base.rows["summed"],
            carried["summed"],
            known.summed,
        )
        return Rounding(read, entered, output, None)
    assert known.left is not None
    entered = norm_rounding(
        layer.norm1,
        base.rows["summed"],
        carried["summed"],
        known.summed,
    )
    last = norm_rounding(layer.norm2, base.rows["left"], carried["left"], known.left)
    return Rounding(read, entered, output, last)


def row_norms(layer: Layer, base: RowBase) -> RowNorms:
    """Returns the norms of the Jacobians at base rows [...]."""
    block = layer.feed_forward
    steep = block.bend.slope(base.preactivation)
    # The product's own rounding, where entries cancel.
    flow = (jnp.sqrt((block.w2**2).sum(0)) * jnp.sqrt((block.w1**2).sum(1))).sum()
    slop = 2 * term_roundoff(sum(block.w1.shape)) * (1 + flow)
    jacobian = jnp.einsum(
        "df,...f,fm->...dm", block.w2, steep, block.w1, precision=HIGHEST
    )
    width = block.w2.shape[0]
    eye = jnp.eye(width, dtype=jacobian.dtype)
    if layer.combine == "concat":
        h = layer.attention.value.shape[0]
        heads = jacobian[..., width:]
        heads = heads.reshape(*heads.shape[:-1], h, -1).swapaxes(-3, -2)
        own = spectral_norms(eye + jacobian[..., :width])
        return RowNorms(None, own + slop, spectral_norms(heads) + slop, None, None)
    if layer.layer_norm == "none":
        return RowNorms(None, spectral_norms(eye + jacobian) + slop, None, None, None)
    assert layer.norm1 is not None and layer.norm2 is not None
    if layer.layer_norm == "pre":
        norm2 = norm_jacobian(layer.norm2, base.rows["summed"])
        whole = eye + jnp.matmul(jacobian, norm2, precision=HIGHEST)
        norms = [spectral_norms(x) for x in (whole, jacobian, norm2)]
        most = norms[0] + slop * (1 + norms[2])
        return RowNorms(most, norms[1] + slop, None, None, norms[2])
    norm1 = norm_jacobian(layer.norm1, base.rows["summed"])
    norm2 = norm_jacobian(layer.norm2, base.rows["left"])
    through = jnp.matmul(eye + jacobian, norm1, precision=HIGHEST)
    whole = jnp.matmul(norm2, through, precision=HIGHEST)
    norms = [spectral_norms(x) for x in (whole, eye + jacobian, norm1, norm2)]
    most = norms[0] + slop * (1 + norms[2]) * (1 + norms[3])
    return RowNorms(most, norms[1] + slop, None, norms[2], norms[3])
