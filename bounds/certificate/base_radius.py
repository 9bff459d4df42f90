"""How far the base pass is from the true one: a radius for every base quantity.

The model's weights are the stored numbers; what is computed from them is rounded, and
where terms cancel the rounding is relative to the terms. A number x of the base pass is
within its radius of the true one: an inner product adds its rounding to what its factors
bring along, a Lipschitz map multiplies. docs/certificates.md, section 7, has the rules.
Shapes: r rows wanted, n keys, h heads.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.certificate.activation_ball import steepest_within
from bounds.certificate.layer_constants import LayerConstants
from bounds.certificate.norm_gain import (
    farthest_from_mean,
    norm_gain,
    vector_norms,
)
from bounds.certificate.order import bounded, least, times
from bounds.certificate.scores.base import over_query_scale, score_rule
from bounds.influence.pointwise import RowBase
from bounds.readings import norm_before
from bounds.rounding import SCALAR_STEPS, gamma_upper, tiled_summation, unit_roundoff
from jax_models.attention import KeyStore, project
from jax_models.layer import Layer
from jax_models.pytree import register
from jax_models.rows import Norm, linear
from jax_models.transformer import Transformer, join_heads

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class RowRadius:
    """Radii of the base quantities of rows; None where a layer lacks the stage."""

    query: Array  # [r, h] over the score scale where the query is
    slope: Array  # [r, h] of the slope of any score in the query
    score: Array  # [r, h] of any score
    summed: Array | None  # [r] residual sum in front of a norm, centring included
    preactivation: Array  # [r, f]
    left: Array | None  # [r] input of the last norm (post), centring included


@register
@dataclasses.dataclass(frozen=True)
class BaseRadius:
    """Radii of a layer's base pass."""

    rows: Array  # [n] the layer's input, the rounding of its centring included
    key: Array  # [h] of any key
    value: Array  # [h] of any value, in value space
    spread: Array  # [h] largest distance of a value from a point, in value space
    by_row: RowRadius
    output: Array  # [r]


def base_radius(
    layer: Layer,
    constants: LayerConstants,
    rows: Array,
    known: Array,
    inputs: Array,
    wanted: Array,
    queries: Array,
    scale: Array,
    store: KeyStore,
    projected: Array,
    heads: Array,
    base: RowBase,
) -> BaseRadius:
    """Returns the radii of a layer's base pass.

    Args:
        layer: the layer.
        constants: its constants.
        rows: its input [n, d].
        known: radii of that input [n].
        inputs: what its attention reads [n, d].
        wanted: the rows wanted [r].
        queries: of those rows [h, r, e].
        scale: their score scales [r].
        store: keys and values.
        projected: the values in value space [h, n, o].
        heads: attended values of the wanted rows [h, r, v].
        base: pointwise base quantities of the wanted rows.
    """
    attention = layer.attention
    read, norm = known, norm_before(layer)
    if norm is not None:
        read = _behind_norm(norm, rows, centred(rows, known))
    roundoff = gamma_upper(inputs.shape[1] + 1)

    def rounded(weight: Array, bias: Array | None) -> Array:
        offset = None if bias is None else jnp.abs(bias)
        return roundoff * vector_norms(
            project(jnp.abs(weight), offset, jnp.abs(inputs))
        )

    key = constants.key[:, None] * read + rounded(attention.key, attention.key_bias)
    query = constants.query[:, None] * read
    query = (query + rounded(attention.query, attention.query_bias))[:, wanted]
    key = key.max(axis=1)
    query = over_query_scale(attention, query, scale)
    query = query + gamma_upper(SCALAR_STEPS) * vector_norms(queries)
    output = constants.output_entries
    # O_h (W_V u + b_V): the projection's rounding, then that of the output's.
    value_size = vector_norms(store.values)
    value = rounded(attention.value, attention.value_bias)
    value += gamma_upper(attention.value.shape[1]) * value_size
    value = constants.value[:, None] * read + output[:, None] * value
    value, value_size = value.max(axis=1), value_size.max(axis=1)

    score, slope, largest = score_rule(attention.scoring).radii(
        constants, queries, query, scale, store.keys, key
    )
    # A weight rounds in its exponent, twice the largest score, and in the sum over keys.
    steps = 2 * largest + tiled_summation(rows.shape[0])[1] + SCALAR_STEPS
    roundoff = jnp.expm1(unit_roundoff(jnp.float64) * steps)
    spread = value + farthest_from_mean(projected)
    mean = value[:, None] + roundoff * (output * value_size)[:, None]
    mean += mean_radius(2 * score + roundoff, spread[:, None])
    summed, preactivation, left, out = _pointwise(
        layer, constants, rows[wanted], known[wanted], heads, mean, base
    )
    by_row = RowRadius(query.T, slope.T, score.T, summed, preactivation, left)
    out = bounded(out)
    return BaseRadius(bounded(centred(rows, known)), key, value, spread, by_row, out)


def embedding_radius(model: Transformer, rows: Array) -> Array:
    """Returns the radii [...] of rows [..., d] of embedding and position encoding."""
    if model.position is None:
        return jnp.zeros(rows.shape[:-1], rows.dtype)
    return gamma_upper(1) * vector_norms(rows)


def mean_radius(log_weight: Array, largest: Array) -> Array:
    """Returns how far a weighted mean is off through its weights.

    |sum (a_w - a^_w) v_w| <= (e^x - 1) sum a^_w |v_w - p| for any point p where all
    weights are known within a factor e^x, and at most 2 max |v_w - p| whatever they are.

    Args:
        log_weight: x.
        largest: the largest |v_w - p|, broadcastable.
    """
    return largest * least(jnp.expm1(log_weight), 2.0)


def centred(rows: Array, radius: Array) -> Array:
    """Returns the radius of rows [..., d] once the rounding of centring is added."""
    return radius + gamma_upper(rows.shape[-1] + 2) * vector_norms(rows)


def _behind_norm(norm: Norm, rows: Array, radius: Array) -> Array:
    """Radius [...] behind a layer norm, from that of the centred row in front of it."""
    longest = norm.largest * rows.shape[-1] ** 0.5
    rounded = longest + vector_norms(norm.bias)
    carried = least(times(norm_gain(norm, rows, radius), radius), 2 * longest)
    return carried + gamma_upper(rows.shape[-1] + SCALAR_STEPS) * rounded


def _pointwise(
    layer: Layer,
    constants: LayerConstants,
    rows: Array,
    known: Array,
    heads: Array,
    mean: Array,
    base: RowBase,
) -> tuple[Array | None, Array, Array | None, Array]:
    """Radii of summed, preactivation, left and output rows.

    Args:
        layer: the layer.
        constants: its constants.
        rows: input rows [r, d].
        known: their radii [r].
        heads: attended values [h, r, v].
        mean: their radii in value space [h, r].
        base: what follows from them.
    """
    block, (h, _, v), width = layer.feed_forward, heads.shape, rows.shape[1]
    sizes, joined = vector_norms(block.w1), join_heads(heads)
    z = base.preactivation
    within = gamma_upper(block.w1.shape[1] + 1)
    through = gamma_upper(block.w1.shape[0] + 2 + 2 * block.bend.roundings)

    def enter(moved: Array, read: Array) -> tuple[Array, Array]:
        """Of the preactivations [r, f], moved by what they read; and their rounding."""
        terms = linear(jnp.abs(read), jnp.abs(block.w1), jnp.abs(block.b1))
        return moved + within * terms, within * terms

    def rounded(stream: Array, radius: Array, entering: Array) -> Array:
        """Of the block and its residual; a neuron that is surely inactive has none."""
        steep = steepest_within(block.bend, z, radius)
        active = jnp.abs(block.bend(z))
        terms = jnp.abs(stream) + linear(active, jnp.abs(block.w2), jnp.abs(block.b2))
        entering = linear(steep * entering, jnp.abs(block.w2))
        return vector_norms(entering + through * terms)

    if layer.combine == "concat":
        parts = vector_norms(block.w1[:, width:].reshape(-1, h, v))
        moved = vector_norms(block.w1[:, :width]) * known[:, None]
        moved += jnp.einsum("fh,hr->rf", parts, mean, precision=HIGHEST)
        preactivation, own = enter(moved, jnp.concatenate([rows, joined], axis=1))
        out = constants.block * known
        out += jnp.einsum("h,hr->r", constants.heads, mean, precision=HIGHEST)
        return None, preactivation, None, out + rounded(rows, preactivation, own)

    bias = layer.attention.output_bias
    assert layer.attention.output is not None
    terms = linear(jnp.abs(joined), jnp.abs(layer.attention.output))
    terms += jnp.abs(rows) + (0.0 if bias is None else jnp.abs(bias))
    summed = known + mean.sum(axis=0) + gamma_upper(h * v + 2) * vector_norms(terms)
    if layer.layer_norm == "none":
        preactivation, own = enter(sizes * summed[:, None], base.rows["summed"])
        out = constants.block * summed + rounded(
            base.rows["summed"], preactivation, own
        )
        return None, preactivation, None, out
    assert layer.norm1 is not None and layer.norm2 is not None
    pre, at = layer.layer_norm == "pre", centred(base.rows["summed"], summed)
    norm = layer.norm2 if pre else layer.norm1
    entered = _behind_norm(norm, base.rows["summed"], at)
    behind = base.rows["entered"]
    preactivation, own = enter(sizes * entered[:, None], behind)
    out = constants.block * entered
    out += rounded(base.rows["summed"] if pre else behind, preactivation, own)
    if pre:
        return at, preactivation, None, summed + out
    left = centred(base.rows["left"], out)
    out = _behind_norm(layer.norm2, base.rows["left"], left)
    return at, preactivation, left, out
