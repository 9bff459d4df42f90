"""What a layer does to each row after attention: its derivative, and the rest.

The row map F takes a row y and its heads' outputs b to the layer's output row. A known
change (p_y, p_b) goes through exactly. Of a further change e only norms of parts are
known (its *sources*: the row itself, then every head), and what it does beyond the base
derivative J e comes in at three places, each with its own lemma: the inner norm, the
neurons, and the outer norm.

* A ReLU neuron with base input u, moved to w = u + p_u, D = 1[u > 0]: for |e| <= b,
  |relu(w + e) - relu(w) - D e| <= min(b, max(0, b - w)) if D = 1, with -w for w if D = 0.
* A gelu neuron: with |gelu''| <= sqrt(2/pi), at most sqrt(2/pi) (|p_u| b + b^2/2), and at
  most (2 lambda - 1) b, the width of the range of gelu'.
* A norm: `norm_defect`.

Source: docs/screened.md, sections 2.7 and 2.8.
Shapes: j rows of a tile, i substitutions, c cotangents, f neurons, s = 1 + H sources.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import Array

from bounds.activation import GELU_CURVATURE, slope_width, slopes
from bounds.influence.pointwise import RowBase
from bounds.influence.screening.softmax_defect import (
    change_norms,
    deviations,
    norm_defect,
    pull_back,
)
from bounds.matrix_norm import spectral_norms
from bounds.readings import no_rule
from jax_models.layer import Layer
from jax_models.pytree import register
from jax_models.rows import Gelu, Operation, Relu

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class Cotangents:
    """Derivatives of what is wanted by the stages of the row map [r, c, ...]."""

    row: Array  # [r, c, d] by y, not through the heads
    heads: Array  # [r, c, h v]
    inner: Array | None  # [r, c, d] by the output of the inner norm
    neurons: Array  # [r, c, f] by the neurons' outputs
    left: Array  # [r, c, d] by the row that the outer norm reads


@register
@dataclasses.dataclass(frozen=True)
class RowMap:
    """The derivative of the row map at every row, as far as the screen needs it."""

    base: RowBase  # [r, ...]
    slope: Array  # [r, f] the neurons' derivative at the base
    unit_gain: Array  # [r, f, s] |d u / d source|
    left_gain: Array  # [r, s] of the row that the outer norm reads
    out_gain: Array  # [r, s]
    inner_gain: Array  # [r, 2] from the inner norm to left and to the output
    neuron_gain: Array  # [r, f] from a neuron to the output
    unit_weight: Array  # [r, f] |cotangent| of a neuron's output
    inner_weight: Array  # [r] of the inner norm's output
    out_weight: Array  # [r] of the layer's output


def pull_rows(
    layer: Layer, base: RowBase, slope: Array, cotangents: Array
) -> Cotangents:
    """Returns cotangents of the layer's output rows [r, c, d] at every earlier stage."""
    left = cotangents
    if layer.layer_norm == "post":
        assert layer.norm2 is not None
        left = pull_back(layer.norm2, base.rows["left"], cotangents)
    neurons = jnp.matmul(left, layer.feed_forward.w2, precision=HIGHEST)
    back = pull_neurons(layer, slope, neurons)
    return pull_entering(layer, base, left, neurons, back)


def pull_neurons(layer: Layer, slope: Array, neurons: Array) -> Array:
    """Returns cotangents of the block's input [r, c, m] from those of its neurons."""
    return jnp.matmul(
        neurons * slope[:, None], layer.feed_forward.w1, precision=HIGHEST
    )


def pull_entering(
    layer: Layer, base: RowBase, left: Array, neurons: Array, block: Array
) -> Cotangents:
    """Returns the cotangents before the block from those of its input and beside it."""
    if layer.combine == "concat":
        d = left.shape[-1]
        return Cotangents(left + block[..., :d], block[..., d:], None, neurons, left)
    assert layer.attention.output is not None
    summed, inner = left + block, None
    if layer.layer_norm == "pre":
        assert layer.norm2 is not None
        inner = block
        summed = left + pull_back(layer.norm2, base.rows["summed"], block)
    elif layer.layer_norm == "post":
        assert layer.norm1 is not None
        inner = summed
        summed = pull_back(layer.norm1, base.rows["summed"], summed)
    heads = jnp.matmul(summed, layer.attention.output, precision=HIGHEST)
    return Cotangents(summed, heads, inner, neurons, left)


def source_norms(layer: Layer, found: Cotangents) -> Array:
    """Returns the spectral norms of derivatives by each source [r, s]."""
    r, c, _ = found.heads.shape
    heads = layer.attention.num_heads
    by_head = found.heads.reshape(r, c, heads, -1).swapaxes(1, 2)
    return jnp.concatenate(
        [spectral_norms(found.row)[:, None], spectral_norms(by_head)], axis=1
    )


def unit_norms(layer: Layer, base: RowBase) -> Array:
    """Returns |d u / d source| for every neuron [r, f, s]."""
    w1 = layer.feed_forward.w1
    r, f = base.preactivation.shape
    block = jnp.broadcast_to(w1, (r, *w1.shape))
    nothing = jnp.zeros((r, f, layer.attention.query.shape[2]), w1.dtype)
    found = pull_entering(layer, base, nothing, block, block)
    heads = found.heads.reshape(r, f, layer.attention.num_heads, -1)
    both = [_norm(found.row, 2)[..., None], _norm(heads, 3)]
    return jnp.concatenate(both, axis=2)


def make_row_map(
    layer: Layer, base: RowBase, cotangents: Array
) -> tuple[RowMap, Cotangents]:
    """Returns the row map's derivatives at a block of rows, and pulled cotangents.

    Args:
        layer: the layer.
        base: its base quantities at the rows [r, ...].
        cotangents: of what is wanted, by the layer's output rows [r, c, d].
    """
    slope = slopes(layer.feed_forward.bend, base.preactivation)
    r, d = slope.shape[0], layer.attention.query.shape[2]
    w2 = layer.feed_forward.w2
    wanted = pull_rows(layer, base, slope, cotangents)
    identity = jnp.broadcast_to(jnp.eye(d, dtype=slope.dtype), (r, d, d))
    out = pull_rows(layer, base, slope, identity)
    neurons = jnp.broadcast_to(w2, (r, *w2.shape))
    left = pull_entering(
        layer, base, identity, neurons, pull_neurons(layer, slope, neurons)
    )
    inner = jnp.zeros((r, 2), slope.dtype)
    weight = jnp.zeros((r,), slope.dtype)
    if wanted.inner is not None and out.inner is not None and left.inner is not None:
        both = (left.inner, out.inner)
        inner = jnp.stack([spectral_norms(x) for x in both], axis=1)
        weight = spectral_norms(wanted.inner)
    return (
        RowMap(
            base=dataclasses.replace(base, distance=None, nearest=None),
            slope=slope,
            unit_gain=unit_norms(layer, base),
            left_gain=source_norms(layer, left),
            out_gain=source_norms(layer, out),
            inner_gain=inner,
            neuron_gain=_norm(out.neurons, 1),
            unit_weight=_norm(wanted.neurons, 1),
            inner_weight=weight,
            out_weight=spectral_norms(cotangents),
        ),
        wanted,
    )


def entering_norms(layer: Layer) -> Array:
    """Returns the norms of the maps from each source to the sum y + W_o b [s]."""
    assert layer.attention.output is not None
    d, heads = layer.attention.output.shape[0], layer.attention.num_heads
    by_head = layer.attention.output.reshape(d, heads, -1).swapaxes(0, 1)
    one = jnp.ones((1,), by_head.dtype)
    return jnp.concatenate([one, spectral_norms(by_head)])


@register
@dataclasses.dataclass(frozen=True)
class MovedOutput:
    """What a tile of rows becomes: its known change, and bounds on the rest."""

    known: Array  # [j, d, i]
    unknown: Array  # [j, i] norm of the rest of the change
    defect: Array  # [j, i] what of it the base derivative does not say, as weighed


def move_row_map(
    layer: Layer, rows: RowMap, change: Array, heads: Array, sources: Array
) -> MovedOutput:
    """Carries a known change and the norms of an unknown one through the row map.

    Args:
        layer: the layer.
        rows: its derivatives at the rows [j, ...].
        change: the known change of the rows [j, d, i].
        heads: that of the heads' outputs [j, h v, i].
        sources: norms of the unknown changes, of the row and of each head [s, j, i].
    """
    block, base = layer.feed_forward, rows.base
    summed, entered, inner_defect = change, change, jnp.zeros_like(sources[0])
    if layer.combine == "concat":
        read = jnp.concatenate([change, heads], axis=1)
    else:
        assert layer.attention.output is not None
        summed = change + _apply(layer.attention.output, heads)
        read = entered = summed
        if layer.layer_norm != "none":
            norm = layer.norm2 if layer.layer_norm == "pre" else layer.norm1
            assert norm is not None
            read = change_norms(norm, base.rows["summed"], summed)
            entered = read if layer.layer_norm == "post" else summed
            reach = jnp.tensordot(
                entering_norms(layer), sources, axes=1, precision=HIGHEST
            )
            _, deviation = deviations(norm, base.rows["summed"])
            inner_defect, _ = norm_defect(
                norm, deviation[:, None], _norm(summed, 1), reach
            )
    moved = _apply(block.w1, read)
    reach = jnp.einsum("jfs,sji->jfi", rows.unit_gain, sources, precision=HIGHEST)
    reach = reach + _norm(block.w1, 1)[:, None] * inner_defect[:, None]
    z = base.preactivation[..., None]
    kinks = neuron_defect(block.bend, z, rows.slope[..., None], moved, reach)
    active = block.bend.change(z, moved)
    left = entered + _apply(block.w2, active)
    weighed = rows.inner_weight[:, None] * inner_defect
    weighed = weighed + _weigh(rows.unit_weight, kinks)
    out_unknown = _gained(rows.out_gain, sources) + _weigh(rows.neuron_gain, kinks)
    out_unknown = out_unknown + rows.inner_gain[:, 1:] * inner_defect
    if layer.layer_norm != "post":
        return MovedOutput(left, out_unknown, weighed)
    assert layer.norm2 is not None
    columns = jnp.broadcast_to(_norm(block.w2, 0), rows.slope.shape)
    left_unknown = _gained(rows.left_gain, sources) + _weigh(columns, kinks)
    left_unknown = left_unknown + rows.inner_gain[:, :1] * inner_defect
    _, deviation = deviations(layer.norm2, base.rows["left"])
    outer, _ = norm_defect(
        layer.norm2, deviation[:, None], _norm(left, 1), left_unknown
    )
    return MovedOutput(
        change_norms(layer.norm2, base.rows["left"], left),
        out_unknown + outer,
        weighed + rows.out_weight[:, None] * outer,
    )


@functools.singledispatch
def neuron_defect(
    operation: Operation, z: Array, slope: Array, moved: Array, reach: Array
) -> Array:
    """Returns how far each neuron may be from linear [j, f, i]; see the module.

    Args:
        operation: the activation.
        z: what the neurons read at the base [j, f, 1].
        slope: their derivative there [j, f, 1].
        moved: known changes of the neurons' inputs [j, f, i].
        reach: bounds on the unknown ones [j, f, i].
    """
    raise no_rule("neuron_defect", operation)


@neuron_defect.register
def _(operation: Relu, z: Array, slope: Array, moved: Array, reach: Array) -> Array:
    return jnp.clip(reach - (2 * slope - 1) * (z + moved), 0, reach)


@neuron_defect.register
def _(operation: Gelu, z: Array, slope: Array, moved: Array, reach: Array) -> Array:
    curved = GELU_CURVATURE * (jnp.abs(moved) + reach / 2)
    return jnp.minimum(curved, slope_width(operation)) * reach


def _apply(weight: Array, x: Array) -> Array:
    return jnp.einsum("ab,jbi->jai", weight, x, precision=HIGHEST)


def _gained(gains: Array, sources: Array) -> Array:
    return jnp.einsum("js,sji->ji", gains, sources, precision=HIGHEST)


def _weigh(weights: Array, defects: Array) -> Array:
    """sum_f weights[j, f] defects[j, f, i] as [j, i]."""
    return jnp.einsum("jf,jfi->ji", weights, defects, precision=HIGHEST)


def _norm(x: Array, axis: int) -> Array:
    return jnp.sqrt((x * x).sum(axis=axis))
