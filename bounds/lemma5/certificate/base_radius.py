"""How far the base pass is from the true one: a radius for every base quantity.

The model's weights are the stored numbers; what is computed from them is rounded, and
where terms cancel the rounding is relative to the terms. A number x of the base pass is
within its radius of the true one: an inner product adds its rounding to what its factors
bring along, a Lipschitz map multiplies. docs/certificates.md, section 7, has the rules.
Shapes: r rows wanted, n keys, h heads.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.pointwise import RowBase
from bounds.lemma5.certificate.constants import CertificateConstants
from bounds.lemma5.certificate.norm_gain import farthest_from_mean, vector_norms
from bounds.lemma5.certificate.order import bounded, least
from bounds.lemma5.certificate.row_radius import behind_norm, centred, row_radius
from bounds.lemma5.certificate.scores.base import over_query_scale, score_rule
from bounds.lemma5.certificate.sections import entering
from bounds.numbers.rounding import (
    SCALAR_STEPS,
    gamma_upper,
    tiled_summation,
    unit_roundoff,
)
from bounds.readings.rules import norm_before
from jax_models.model.attending import KeyStore, project
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.transformer import Transformer, join_heads

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class RowRadius:
    """Radii of the base quantities of rows."""

    query: Array  # [r, h] over the score scale where the query is
    slope: Array  # [r, h] of the slope of any score in the query
    score: Array  # [r, h] of any score
    # By name: rows in front of a norm [r], centring included; preactivations [r, f].
    rows: dict[str, Array]


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


@register
@dataclasses.dataclass(frozen=True)
class BasePass:
    """The base pass of the wanted rows of a layer over all its keys, as computed."""

    constants: CertificateConstants
    rows: Array  # [n, d] the layer's input
    inputs: Array  # [n, d] what attention reads
    position: Array  # [r] the wanted rows
    queries: Array  # [h, r, e] over the score scale
    store: KeyStore
    summary: Any  # fields [h, r, ...], over head values
    projected: Array  # [h, n, o] values in value space
    base: RowBase  # [r, ...]
    output: Array  # [r, d]

    @property
    def value_size(self) -> Array:
        """The largest head value before the output projection [h]."""
        return vector_norms(self.store.values).max(axis=-1)

    @property
    def key_size(self) -> Array:
        """The largest key [h]."""
        return vector_norms(self.store.keys).max(axis=-1)


def base_radius(layer: Layer, held: BasePass, known: Array, scale: Array) -> BaseRadius:
    """Returns the radii of a layer's base pass.

    Args:
        layer: the layer.
        held: its base pass.
        known: radii of its input [n].
        scale: score scales of the wanted rows [r].
    """
    constants, rows, inputs = held.constants, held.rows, held.inputs
    wanted, queries, store = held.position, held.queries, held.store
    attention = layer.attention
    read, norm = known, norm_before(layer)
    if norm is not None:
        read = behind_norm(norm, rows, centred(rows, known))
    roundoff = gamma_upper(inputs.shape[1] + 1)

    def rounded(weight: Array, bias: Array | None) -> Array:
        offset = None if bias is None else jnp.abs(bias)
        return roundoff * vector_norms(
            project(jnp.abs(weight), offset, jnp.abs(inputs))
        )

    key = constants.key[:, None] * read + rounded(
        attention.key_by_head, attention.key_bias_by_head
    )
    query = constants.query[:, None] * read
    query = (query + rounded(attention.query, attention.query_bias))[:, wanted]
    key = key.max(axis=1)
    query = over_query_scale(attention, query, scale)
    query = query + gamma_upper(SCALAR_STEPS) * vector_norms(queries)
    output = constants.output_entries
    # O_h (W_V u + b_V): the projection's rounding, then that of the output's.
    value_size = vector_norms(store.values)
    value = rounded(attention.value_by_head, attention.value_bias_by_head)
    value += gamma_upper(attention.value_width) * value_size
    value = constants.value[:, None] * read + output[:, None] * value
    value, value_size = value.max(axis=1), value_size.max(axis=1)

    score, slope, largest = score_rule(attention.scoring).radii(
        constants, queries, query, scale, store.keys, key
    )
    # A weight rounds in its exponent, twice the largest score, and in the sum over keys.
    steps = 2 * largest + tiled_summation(rows.shape[0])[1] + SCALAR_STEPS
    roundoff = jnp.expm1(unit_roundoff(jnp.float64) * steps)
    spread = value + farthest_from_mean(held.projected)
    mean = value[:, None] + roundoff * (output * value_size)[:, None]
    mean += mean_radius(2 * score + roundoff, spread[:, None])
    joined = join_heads(attention.weighting.read(held.summary))
    values = {"y": rows[wanted], "heads": joined, **held.base.rows}
    balls = entering(layer, known[wanted], mean)
    after, out = row_radius(layer, constants.sections, values, balls)
    by_row = RowRadius(query.T, slope.T, score.T, after)
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
