"""How far computed base rows of a layer are from the true ones, after attention.

Section by section: what its corners bring along is carried by their Lipschitz constants;
what it rounds itself is followed entry by entry, with one rule for each operation.
docs/certificates.md, section 7. Shapes: r rows, h heads.
"""

import functools

import jax.numpy as jnp
from jax import Array

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


def centred(rows: Array, radius: Array) -> Array:
    """Returns the radius of rows [..., d] once the rounding of centring is added."""
    return radius + gamma_upper(rows.shape[-1] + 2) * vector_norms(rows)


def behind_norm(norm: Norm, rows: Array, radius: Array) -> Array:
    """Returns the radius [...] behind a norm, from that of the centred row before it."""
    longest = norm.largest * rows.shape[-1] ** 0.5
    rounded = longest + vector_norms(norm.bias)
    carried = least(times(norm_gain(norm, rows, radius), radius), 2 * longest)
    return carried + gamma_upper(rows.shape[-1] + SCALAR_STEPS) * rounded


@functools.singledispatch
def rounded(operation: Operation, rows: list[Array], off: list[Array]) -> Array:
    """Returns how far each entry that an operation writes is off [r, d'].

    Args:
        operation: the operation, no norm.
        rows: the computed rows that it reads.
        off: how far their entries are off, apart from what sections begin with.
    """
    raise no_rule("rounded", operation)


@rounded.register
def _(operation: Affine, rows: list[Array], off: list[Array]) -> Array:
    weight, bias = jnp.abs(operation.weight), operation.bias
    terms = linear(jnp.abs(rows[0]), weight, None if bias is None else jnp.abs(bias))
    return linear(off[0], weight) + gamma_upper(weight.shape[1] + 1) * terms


@rounded.register
def _(operation: Sum, rows: list[Array], off: list[Array]) -> Array:
    return sum(off, gamma_upper(1) * sum(map(jnp.abs, rows), jnp.zeros(())))


@rounded.register
def _(operation: Join, rows: list[Array], off: list[Array]) -> Array:
    return jnp.concatenate(off, axis=-1)


@rounded.register
def _(operation: Activation, rows: list[Array], off: list[Array]) -> Array:
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
    """Returns radii of the rows that operations read which are not linear, and the output's.

    In front of a norm [r], the rounding of its centring included; before an activation
    [r, f], entry by entry; of the output rows [r].

    Args:
        layer: the layer.
        constants: of its sections.
        values: its computed rows by their names [r, ...].
        balls: radii of its input and of the attended rows (`entering`).
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
) -> Array:
    """What a section rounds itself [r, d]; adds what is known before activations."""
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
