"""Pointwise parts of a layer: a centre's exact change, its rounding, and Jacobians.

A row's change goes from the residual sum through norms and block as a change, stage by
stage, since every stage needs a radius (`pointwise_radius`). Arrays broadcast over
leading axes [...].
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.activation import GELU_CURVATURE, activation_slopes
from bounds.certificate.base_radius import RowRadius
from bounds.certificate.layer_constants import LayerConstants
from bounds.certificate.norm_gain import (
    norm_jacobian,
    norm_rounding,
    vector_norms,
)
from bounds.certificate.order import least, surely_above
from bounds.influence.pointwise import RowBase
from bounds.matrix_norm import spectral_norms
from bounds.rounding import term_roundoff
from jax_models.changes import activation_change, norm_change
from jax_models.layers import linear
from jax_models.pytree import register
from jax_models.transformer import Layer

HIGHEST = jax.lax.Precision.HIGHEST
# Additional roundings of a gelu, whose error function is right to 20 u.
GELU_STEPS = 16


@register
@dataclasses.dataclass(frozen=True)
class RowNorms:
    """Norms of the Jacobians at base rows; the fields a layer lacks are None."""

    whole: Array | None  # [...] of the map from the residual sum to the output
    block: Array  # [...] of the block (with its residual, except under pre-norm)
    heads: Array | None  # [..., h] of the block in each concatenated head
    norm1: Array | None  # [...]
    norm2: Array | None


@register
@dataclasses.dataclass(frozen=True)
class Carried:
    """A change on its way through the block, at every stage a radius needs."""

    summed: Array | None  # [..., d] change of the residual sum
    entered: Array | None  # [..., d] of what the block reads (pre: LN2, post: LN1)
    preactivation: Array  # [..., f]
    left: Array | None  # [..., d] of the input of the second norm (post)
    output: Array  # [..., d]


def carry(layer: Layer, base: RowBase, change: Array, heads: Array) -> Carried:
    """Returns the change of the output rows, with its stages.

    Args:
        layer: the layer.
        base: base quantities, broadcastable to [..., d].
        change: of the layer's input rows [..., d].
        heads: of the concatenated head outputs [..., h v].
    """
    block, z = layer.feed_forward, base.preactivation

    def through(change: Array) -> tuple[Array, Array]:
        moved = linear(change, block.w1)
        return moved, linear(activation_change(block.activation, z, moved), block.w2)

    if layer.combine == "concat":
        moved, out = through(jnp.concatenate([change, heads], axis=-1))
        return Carried(None, None, moved, None, change + out)
    assert layer.attention.output is not None
    summed = change + linear(heads, layer.attention.output)
    if layer.layer_norm == "none":
        moved, out = through(summed)
        return Carried(summed, summed, moved, None, summed + out)
    assert layer.norm1 is not None and layer.norm2 is not None
    assert base.summed is not None
    if layer.layer_norm == "pre":
        entered = norm_change(layer.norm2, base.summed, summed)
        moved, out = through(entered)
        return Carried(summed, entered, moved, None, summed + out)
    entered = norm_change(layer.norm1, base.summed, summed)
    moved, out = through(entered)
    left = entered + out
    assert base.left is not None
    out = norm_change(layer.norm2, base.left, left)
    return Carried(summed, entered, moved, left, out)


def move_base(base: RowBase, carried: Carried) -> tuple[RowBase, Carried]:
    """Returns the base quantities after a change, and no change at all."""

    def add(one: Array | None, two: Array | None) -> Array | None:
        return None if one is None or two is None else one + two

    post = base.entered is not None
    moved = RowBase(
        add(base.summed, carried.summed),
        add(base.entered, carried.entered) if post else None,
        base.preactivation + carried.preactivation,
        add(base.left, carried.left),
    )
    return moved, jax.tree.map(jnp.zeros_like, carried)


def activation_strays(
    activation: str, z: Array, moved: Array, known: Array, most: Array
) -> Array:
    """Returns how far the step of an activation may be from that of the true base.

    act(z + dz) - act(z) for two z at most `known` apart. For ReLU the two integrals of
    the slope over [z, z + dz] differ on an interval no longer than that, and only if
    zero is within `known` of the segment.

    Args:
        activation: relu or gelu.
        z: preactivations at the base [..., f].
        moved: their change dz.
        known: radius of z.
        most: width of the interval of all slopes.
    """
    step = jnp.abs(moved)
    if activation == "relu":
        ends = (z, z + moved)
        above, below = (
            surely_above(sign * ends[0], known) & surely_above(sign * ends[1], known)
            for sign in (1, -1)
        )
        return jnp.where(above | below, 0.0, least(step, known))
    return least(GELU_CURVATURE * known, most) * step


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
    carried: Carried,
    change: Array,
    heads: Array,
    known: RowRadius,
) -> Rounding:
    """Returns how far `carry` is from the change of the true rows, stage by stage.

    A product with W1, the activation's change and a product with W2 round by the sum of
    |W2[:, u]||W1[u, :]| times the size of what enters, whatever cancels in them. True
    preactivations within their radius of the computed ones change an activation's step
    by what `activation_strays` says.

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
    steps = sum(block.w1.shape) + (0 if block.activation == "relu" else GELU_STEPS)
    roundoff, within = (
        term_roundoff(steps),
        term_roundoff(block.w1.shape[1]),
    )
    strays = activation_strays(
        block.activation,
        base.preactivation,
        carried.preactivation,
        known.preactivation,
        constants.spread,
    )
    strays = (strays * jnp.sqrt((block.w2 * block.w2).sum(axis=0))).sum(axis=-1)
    if layer.combine == "concat":
        read = vector_norms(change) + vector_norms(heads)
        terms = vector_norms(change) + constants.flow * read
        return Rounding(within * read, None, roundoff * terms + strays, None)
    assert carried.summed is not None and carried.entered is not None
    stream = carried.entered if layer.layer_norm == "post" else carried.summed
    entering = vector_norms(carried.entered)
    terms, read = vector_norms(stream) + constants.flow * entering, within * entering
    output = roundoff * terms + strays
    if layer.layer_norm == "none":
        return Rounding(read, None, output, None)
    assert layer.norm1 is not None and layer.norm2 is not None
    assert base.summed is not None and known.summed is not None
    if layer.layer_norm == "pre":
        entered = norm_rounding(
            layer.norm2, constants.norm2, base.summed, carried.summed, known.summed
        )
        return Rounding(read, entered, output, None)
    assert base.left is not None and carried.left is not None
    assert known.left is not None
    entered = norm_rounding(
        layer.norm1, constants.norm1, base.summed, carried.summed, known.summed
    )
    last = norm_rounding(
        layer.norm2, constants.norm2, base.left, carried.left, known.left
    )
    return Rounding(read, entered, output, last)


def row_norms(layer: Layer, base: RowBase) -> RowNorms:
    """Returns the norms of the Jacobians at base rows [...]."""
    block = layer.feed_forward
    slopes = activation_slopes(block.activation, base.preactivation)
    # The product's own rounding, where entries cancel.
    flow = (jnp.sqrt((block.w2**2).sum(0)) * jnp.sqrt((block.w1**2).sum(1))).sum()
    slop = 2 * term_roundoff(sum(block.w1.shape)) * (1 + flow)
    jacobian = jnp.einsum(
        "df,...f,fm->...dm", block.w2, slopes, block.w1, precision=HIGHEST
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
    assert base.summed is not None
    if layer.layer_norm == "pre":
        norm2 = norm_jacobian(layer.norm2, base.summed)
        whole = eye + jnp.matmul(jacobian, norm2, precision=HIGHEST)
        norms = [spectral_norms(x) for x in (whole, jacobian, norm2)]
        most = norms[0] + slop * (1 + norms[2])
        return RowNorms(most, norms[1] + slop, None, None, norms[2])
    assert base.left is not None
    norm1 = norm_jacobian(layer.norm1, base.summed)
    norm2 = norm_jacobian(layer.norm2, base.left)
    through = jnp.matmul(eye + jacobian, norm1, precision=HIGHEST)
    whole = jnp.matmul(norm2, through, precision=HIGHEST)
    norms = [spectral_norms(x) for x in (whole, eye + jacobian, norm1, norm2)]
    most = norms[0] + slop * (1 + norms[2]) * (1 + norms[3])
    return RowNorms(most, norms[1] + slop, None, norms[2], norms[3])
