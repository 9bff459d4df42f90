"""Distance of the base pass from the true one: a radius for every base quantity.

The base pass is the evaluation on the unchanged input, in floats; the true one is
exact. A radius is an upper bound on the error of a number, or on the norm of a vector's.
Value space, in which heads are compared, is the space after the output projection (the
head's own where heads are concatenated). A section is a part of a layer after attention,
a norm or affine maps with an activation; corners are the rows that sections read and
write. The model's weights are the stored numbers; numbers computed from them are
rounded, and where terms cancel the rounding is relative to the terms: an inner product
adds its rounding to the radii of its factors, a Lipschitz map multiplies.
docs/certificates.md, section 7, has the rules.
"""

import functools
from typing import Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bounds.influence.propagation.pointwise import RowBase
from bounds.lemma5.certificate.norm_gain import (
    farthest_from_mean,
    norm_gain,
    steepest_within,
    vector_norms,
)
from bounds.lemma5.certificate.order import bounded, least, times
from bounds.lemma5.certificate.scores import ScoreRule, score_rule
from bounds.lemma5.certificate.sections import (
    CertificateConstants,
    SectionConstants,
    attended,
    carried_on,
    entering,
    sections,
)
from bounds.numbers.rounding import (
    SCALAR_STEPS,
    gamma_upper,
    tiled_summation,
    unit_roundoff,
)
from bounds.readings import no_rule, norm_before
from jax_models.model.attending import KeyStore, project, score_scale
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Activation, Affine, Join, Norm, Operation, Sum, linear
from jax_models.model.transformer import Transformer, join_heads

Entries: TypeAlias = Float[Array, "rows _"]
Rows: TypeAlias = Float[Array, "*rows width"]
Radii: TypeAlias = Float[Array, "*rows"]
Named: TypeAlias = dict[str, Float[Array, "..."]]  # arrays of rows, by name


@pytree
class RowRadius:
    """Radii of queries, scores and rows after attention that the base pass computes."""

    query: Float[Array, "rows heads"]  # over the score scale where queries are
    slope: Float[Array, "rows heads"]  # of any score's derivative in the query
    score: Float[Array, "rows heads"]  # of any score
    # By name: rows in front of a norm [r], centring included; preactivations [r, f].
    rows: Named


@pytree
class BaseRadius:
    """Radii of all that a layer's base pass computes: rows, keys, values and scores."""

    # The layer's input, the rounding of its centring included.
    rows: Float[Array, "tokens"]
    key: Float[Array, "heads"]  # of any key
    value: Float[Array, "heads"]  # of any value, in value space
    # Largest distance of a value from a point, in value space.
    spread: Float[Array, "heads"]
    by_row: RowRadius
    output: Float[Array, "rows"]


@pytree
class LayerBase:
    """Base pass of a layer, as computed: all keys and values, and the rows at `position`."""

    layer: Layer
    constants: CertificateConstants
    rows: Float[Array, "tokens width"]  # the layer's input
    inputs: Float[Array, "tokens width"]  # what attention reads
    position: Int[Array, "rows"]  # of the rows that are held
    queries: Float[Array, "heads rows d_k"]  # over the score scale
    store: KeyStore
    summary: Any  # fields [h, r, ...], over head values
    projected: Float[Array, "heads keys value_space"]  # values in value space
    base: RowBase  # [r, ...]
    output: Float[Array, "rows width"]
    radius: Any = None  # `BaseRadius`, its distance from exact arithmetic
    spread: Any = None  # `RowSpread`, of a pass that holds all rows
    roundoff: Any = None  # relative, `mean_deviation.Roundoff`

    @property
    def value_size(self) -> Float[Array, "heads"]:
        """Largest norm of a value of each head, before the output projection."""
        return vector_norms(self.store.values).max(axis=-1)

    @property
    def key_size(self) -> Float[Array, "heads"]:
        """Largest norm of a key of each head."""
        return vector_norms(self.store.keys).max(axis=-1)


def rule_of(held: LayerBase, rows: Int[Array, "rows"]) -> ScoreRule:
    """Bounds on a layer's scores and their slopes, for the query rows at positions `rows`."""
    attention, n = held.layer.attention, held.rows.shape[0]
    scale = jnp.broadcast_to(score_scale(attention, n, rows), rows.shape)
    return score_rule(attention.scoring)(attention, held.constants, scale)


def centred(rows: Rows, radius: Radii) -> Radii:
    """Radii of rows less their means: `radius` plus the rounding of the subtraction."""
    return radius + gamma_upper(rows.shape[-1] + 2) * vector_norms(rows)


def behind_norm(norm: Norm, rows: Rows, radius: Radii) -> Radii:
    """Radius of a norm's output rows; `radius` is that of its centred input rows."""
    longest = norm.largest * rows.shape[-1] ** 0.5
    rounded = longest + vector_norms(norm.bias)
    # Two outputs of a norm are at most 2 max|scale| sqrt(d) apart, whatever enters it.
    carried = least(times(norm_gain(norm, rows, radius), radius), 2 * longest)
    return carried + gamma_upper(rows.shape[-1] + SCALAR_STEPS) * rounded


@functools.singledispatch
def rounded(operation: Operation, rows: list[Entries], off: list[Entries]) -> Entries:
    """Bounds on errors of an operation's output entries, by errors `off` of its inputs."""
    # `off` are the errors of the entries of `rows`, without those that come from the
    # section's corners (its input rows), whose radii are carried on apart.
    raise no_rule("rounded", operation)


@rounded.register
def _(
    operation: Affine,
    rows: list[Float[Array, "rows read"]],
    off: list[Float[Array, "rows read"]],
) -> Float[Array, "rows written"]:
    # A sum rounds relative to its terms, which may be far larger than what they leave.
    weight, bias = jnp.abs(operation.weight), operation.bias
    terms = linear(jnp.abs(rows[0]), weight, None if bias is None else jnp.abs(bias))
    return linear(off[0], weight) + gamma_upper(weight.shape[1] + 1) * terms


@rounded.register
def _(operation: Sum, rows: list[Entries], off: list[Entries]) -> Entries:
    return sum(off, gamma_upper(1) * sum(map(jnp.abs, rows), jnp.zeros(())))


@rounded.register
def _(operation: Join, rows: list[Entries], off: list[Entries]) -> Entries:
    return jnp.concatenate(off, axis=-1)


@rounded.register
def _(operation: Activation, rows: list[Entries], off: list[Entries]) -> Entries:
    # The slope is the largest within the whole radius of the preactivation, `off[1]`,
    # corners included: 0 for a neuron that is surely inactive.
    steep = steepest_within(operation, rows[0], off[1])
    steps = 2 * operation.roundings
    own = gamma_upper(steps + 1) * jnp.abs(operation(rows[0])) if steps else 0.0
    return steep * off[0] + own


def row_radius(
    layer: Layer,
    constants: dict[str, SectionConstants],
    values: Named,
    balls: Named,
) -> tuple[Named, Float[Array, "..."]]:
    """Radii of the rows that norms and activations read, and of a layer's output rows."""
    # A row before a norm has one radius, the rounding of its centring included; a row
    # before an activation has one for each entry. `balls` begins as the radii of the
    # layer's input and of the attended rows (`entering`).
    values, balls, kept = dict(values), dict(balls), {}
    off = {name: jnp.zeros_like(x) for name, x in values.items()}
    for step in layer.writes.steps:
        if step.name == attended(layer):
            read = [[x[name] for name in step.inputs] for x in (values, off)]
            off[step.name] = rounded(step.operation, *read)
            values[step.name] = step.operation(*read[0])
    for section in sections(layer):
        name, norm = section.name, section.norm
        if norm is not None:
            (source,) = section.sources
            kept[source] = centred(values[source], balls[source])
            balls[name] = behind_norm(norm, values[source], kept[source])
            continue
        numbers, within = constants[name], dict(off)  # the section's own rounding
        for step in section.program.steps:
            rows, entries = ([x[y] for y in step.inputs] for x in (values, within))
            if step == section.activation:
                (read,) = step.inputs
                kept[read] = carried_on(numbers.reads, balls) + entries[0]
                entries.append(kept[read])
            within[step.name] = rounded(step.operation, rows, entries)
            values.setdefault(step.name, step.operation(*rows))
        balls[name] = carried_on(numbers.gains, balls) + vector_norms(within[name])
    return kept, balls[layer.writes.output]


def base_radius(held: LayerBase, known: Float[Array, "tokens"]) -> BaseRadius:
    """Radii of a layer's base pass `held`; `known` are the radii of its input rows."""
    constants, rows, inputs = held.constants, held.rows, held.inputs
    wanted, queries, store = held.position, held.queries, held.store
    layer, attention, rule = held.layer, held.layer.attention, rule_of(held, wanted)
    read, norm = known, norm_before(layer)
    if norm is not None:
        read = behind_norm(norm, rows, centred(rows, known))
    roundoff = gamma_upper(inputs.shape[1] + 1)

    def rounded(
        weight: Float[Array, "heads d width"], bias: Float[Array, "heads d"] | None
    ) -> Float[Array, "heads tokens"]:
        offset = None if bias is None else jnp.abs(bias)
        terms = project(jnp.abs(weight), offset, jnp.abs(inputs))
        return roundoff * vector_norms(terms)

    key = constants.key[:, None] * read
    key = key + rounded(attention.key_by_head, attention.key_bias_by_head)
    query = constants.query[:, None] * read
    query = (query + rounded(attention.query, attention.query_bias))[:, wanted]
    key = key.max(axis=1)
    query = query / rule.query_scale + gamma_upper(SCALAR_STEPS) * vector_norms(queries)
    output = constants.output_entries
    # O_h (W_V u + b_V): the projection's rounding, then that of the output's.
    value_size = vector_norms(store.values)
    value = rounded(attention.value_by_head, attention.value_bias_by_head)
    value += gamma_upper(attention.value_width) * value_size
    value = constants.value[:, None] * read + output[:, None] * value
    value, value_size = value.max(axis=1), value_size.max(axis=1)

    score, slope = rule.radii(queries, query, store.keys, key)
    # A weight rounds in its exponent, twice the largest score, and in the sum over keys.
    largest = rule.score_size(queries, store.keys)
    steps = 2 * largest + tiled_summation(rows.shape[0])[1] + SCALAR_STEPS
    roundoff = jnp.expm1(unit_roundoff(jnp.float64) * steps)
    # From the mean of the computed values to any true one.
    spread = value + farthest_from_mean(held.projected)
    mean = value[:, None] + roundoff * (output * value_size)[:, None]
    # A score enters a weight twice, in its own exponential and in the sum of all.
    mean += mean_radius(2 * score + roundoff, spread[:, None])
    joined = join_heads(attention.weighting.read(held.summary))
    values = {"y": rows[wanted], "heads": joined, **held.base.rows}
    balls = entering(layer, known[wanted], mean)
    after, out = row_radius(layer, constants.sections, values, balls)
    by_row = RowRadius(query.T, slope.T, score.T, after)
    out = bounded(out)
    return BaseRadius(bounded(centred(rows, known)), key, value, spread, by_row, out)


def embedding_radius(model: Transformer, rows: Rows) -> Radii:
    """Radii of the first layer's input rows: the rounding of adding the position code."""
    if model.position is None:
        return jnp.zeros(rows.shape[:-1], rows.dtype)
    return gamma_upper(1) * vector_norms(rows)


def mean_radius(
    log_weight: Float[Array, "heads rows"], largest: Float[Array, "heads #rows"]
) -> Float[Array, "heads rows"]:
    """Upper bound on the error of a weighted mean that errors of its weights cause."""
    # For any point p, |sum (a_w - a^_w) v_w| <= (e^x - 1) sum a^_w |v_w - p| where all
    # weights are known within a factor e^x (`log_weight` is x), and at most 2 max
    # |v_w - p| (`largest` is the maximum) for any weights.
    return largest * least(jnp.expm1(log_weight), 2.0)
