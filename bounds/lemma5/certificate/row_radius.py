"""Distance of a layer's computed base rows from the true ones, after attention.

Section by section: the radii of its corners are carried by their Lipschitz constants; its
own rounding is followed entry by entry, with one rule for each operation
(docs/certificates.md, section 7).
"""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.activation_ball import steepest_within
from bounds.lemma5.certificate.norm_gain import norm_gain, vector_norms
from bounds.lemma5.certificate.order import least, times
from bounds.lemma5.certificate.sections import (
    Section,
    SectionConstants,
    attended,
    carried_on,
    sections,
)
from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.readings.rules import no_rule
from jax_models.model.layer import Layer
from jax_models.model.rows import Activation, Affine, Join, Norm, Operation, Sum, linear


def centred(
    rows: Float[Array, "*rows width"], radius: Float[Array, "*rows"]
) -> Float[Array, "*rows"]:
    """Radius of rows once the rounding of centring is added."""
    return radius + gamma_upper(rows.shape[-1] + 2) * vector_norms(rows)


def behind_norm(
    norm: Norm, rows: Float[Array, "*rows width"], radius: Float[Array, "*rows"]
) -> Float[Array, "*rows"]:
    """Radius after a norm, from that of the centred row before it."""
    longest = norm.largest * rows.shape[-1] ** 0.5
    rounded = longest + vector_norms(norm.bias)
    carried = least(times(norm_gain(norm, rows, radius), radius), 2 * longest)
    return carried + gamma_upper(rows.shape[-1] + SCALAR_STEPS) * rounded


@functools.singledispatch
def rounded(
    operation: Operation,
    rows: list[Float[Array, "rows _"]],
    off: list[Float[Array, "rows _"]],
) -> Float[Array, "rows _"]:
    """Error of each entry that an operation writes.

    `off` are the errors of the entries of `rows`, without those of the section's corners.
    """
    raise no_rule("rounded", operation)


@rounded.register
def _(
    operation: Affine,
    rows: list[Float[Array, "rows read"]],
    off: list[Float[Array, "rows read"]],
) -> Float[Array, "rows written"]:
    weight, bias = jnp.abs(operation.weight), operation.bias
    terms = linear(jnp.abs(rows[0]), weight, None if bias is None else jnp.abs(bias))
    return linear(off[0], weight) + gamma_upper(weight.shape[1] + 1) * terms


@rounded.register
def _(
    operation: Sum,
    rows: list[Float[Array, "rows width"]],
    off: list[Float[Array, "rows width"]],
) -> Float[Array, "rows width"]:
    return sum(off, gamma_upper(1) * sum(map(jnp.abs, rows), jnp.zeros(())))


@rounded.register
def _(
    operation: Join,
    rows: list[Float[Array, "rows _"]],
    off: list[Float[Array, "rows _"]],
) -> Float[Array, "rows _"]:
    return jnp.concatenate(off, axis=-1)


@rounded.register
def _(
    operation: Activation,
    rows: list[Float[Array, "rows d_ff"]],
    off: list[Float[Array, "rows d_ff"]],
) -> Float[Array, "rows d_ff"]:
    # A neuron that is surely inactive has none; the second is off with its corners.
    steep = steepest_within(operation, rows[0], off[1])
    steps = 2 * operation.roundings
    own = gamma_upper(steps + 1) * jnp.abs(operation(rows[0])) if steps else 0.0
    return steep * off[0] + own


def row_radius(
    layer: Layer,
    constants: dict[str, SectionConstants],
    values: dict[str, Array],
    balls: dict[str, Array],
) -> tuple[dict[str, Array], Array]:
    """Radii of the rows that nonlinear operations read, and of the output rows.

    Before a norm one for each row, the rounding of its centring included; before an
    activation entry by entry. `balls` are the radii of the layer's input and of the attended
    rows (`entering`).
    """
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
        numbers = constants[name]
        own = _own(section, numbers, values, off, balls, kept)
        balls[name] = carried_on(numbers.gains, balls) + vector_norms(own)
    return kept, balls[layer.writes.output]


def _own(
    section: Section,
    constants: SectionConstants,
    values: dict[str, Array],
    off: dict[str, Array],
    balls: dict[str, Array],
    kept: dict[str, Array],
) -> Float[Array, "rows width"]:
    """Rounding of a section's own; adds the radii before activations to `kept`."""
    values, off = dict(values), dict(off)
    for step in section.program.steps:
        rows, entries = ([x[name] for name in step.inputs] for x in (values, off))
        if step == section.activation:
            (name,) = step.inputs
            kept[name] = carried_on(constants.reads, balls) + entries[0]
            entries.append(kept[name])
        off[step.name] = rounded(step.operation, rows, entries)
        values.setdefault(step.name, step.operation(*rows))
    return off[section.name]
