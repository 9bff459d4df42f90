"""Rows after attention: the centre's exact change, its rounding, and Jacobians.

A row's change goes through sections as a change, corner by corner, since every corner
needs a radius (`ball`). Arrays broadcast over their leading axes.
"""

import dataclasses
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.influence.propagation.pointwise import RowBase
from bounds.lemma5.certificate.activation_ball import step_strays
from bounds.lemma5.certificate.base_radius import RowRadius
from bounds.lemma5.certificate.norm_gain import (
    norm_jacobian,
    norm_rounding,
    vector_norms,
)
from bounds.lemma5.certificate.sections import (
    Section,
    SectionConstants,
    attended,
    leading,
    sections,
)
from bounds.numbers.matrix_norm import spectral_norms
from bounds.numbers.rounding import term_roundoff
from bounds.readings.slopes import pull
from jax_models.model.layer import Layer
from jax_models.model.pytree import register

HIGHEST = jax.lax.Precision.HIGHEST

# Changes of a layer's rows by their names: what sections and activations read, the output.
Moved: TypeAlias = dict[str, Array]


def carry(
    layer: Layer,
    base: RowBase,
    change: Float[Array, "*rows width"],
    heads: Float[Array, "*rows concatenated"],
) -> Moved:
    """Changes of the layer's rows, from those of its input and of the joined heads."""
    moved = layer.writes.change(base.rows, {"y": change, "heads": heads})
    program = layer.writes
    names = ("y", "heads", attended(layer), *program.kept, program.output)
    return {name: moved[name] for name in names}


def move_base(base: RowBase, moved: Moved) -> tuple[RowBase, Moved]:
    """The base quantities after a change, and no change at all."""
    rows = {name: row + moved[name] for name, row in base.rows.items()}
    return RowBase(rows), jax.tree.map(jnp.zeros_like, moved)


@register
@dataclasses.dataclass(frozen=True)
class Rounding:
    """Rounding of a centre."""

    corners: dict[str, Array]  # [...] of what sections write
    # [...] of what their activations read, by its source: to be carried on like a ball.
    read: dict[str, dict[str, Array]]


def carry_rounding(
    layer: Layer,
    constants: dict[str, SectionConstants],
    base: RowBase,
    carried: Moved,
    known: RowRadius,
) -> Rounding:
    """Distance of `carry` from the change of the true rows, section by section.

    Products with matrices and the activation's change round by the section's `flow`
    times the size of the input, even where terms cancel. True preactivations within their
    radius (`known`) of the computed ones change an activation's step by at most
    `step_strays`.
    """
    corners, reads, found = {}, {}, sections(layer)
    for section in found[leading(found) :]:
        name, norm = section.name, section.norm
        if norm is not None:
            (source,) = section.sources
            row, off = base.rows[source], known.rows[source]
            corners[name] = norm_rounding(norm, row, carried[source], off)
            continue
        numbers = constants[name]
        sizes = {x: vector_norms(carried[x]) for x in section.sources}
        terms = [numbers.flow[x] * size for x, size in sizes.items()]
        corners[name] = term_roundoff(section.terms[1]) * sum(terms[1:], terms[0])
        step = section.activation
        if step is not None:
            (row,) = step.inputs
            within = term_roundoff(section.terms[0])
            reads[name] = {x: within * sizes[x] for x in numbers.reads}
            strays = step_strays(
                step.operation, base.rows[row], carried[row], known.rows[row]
            )
            corners[name] += (strays * numbers.leaves).sum(axis=-1)
    return Rounding(corners, reads)


@register
@dataclasses.dataclass(frozen=True)
class RowNorms:
    """Norms of Jacobians at base rows, by what sections write and read."""

    local: dict[str, dict[str, Array]]  # [...], of heads [..., h]
    whole: dict[str, Array]  # of the output, by what comes before any bend


def row_norms(
    layer: Layer, constants: dict[str, SectionConstants], base: RowBase
) -> RowNorms:
    """Norms of the Jacobians at base rows."""
    local, slops, paths, found = {}, {}, {}, sections(layer)
    for section in found[leading(found) :]:
        name, slops[section.name] = section.name, 0.0
        if section.norm is None:
            # The products' own rounding, where entries cancel.
            flow = sum(constants[name].flow.values())
            slops[name] = 2 * term_roundoff(section.terms[1]) * (1 + flow)
        jacobians = _jacobians(layer, section, base)
        local[name] = {
            source: _norms(layer, base, source, jacobian, slops[name])
            for source, jacobian in jacobians.items()
        }
        paths[name] = _compose(layer, paths, jacobians)
    if not local or len(local) == 1:
        return RowNorms(local, {})
    slop = jnp.zeros(())
    for name, own in slops.items():
        others = (_sum(local[x]) for x in local if x != name)
        slop = slop + math.prod((1 + x for x in others), start=own)
    whole = {
        start: _norms(layer, base, start, jacobian, slop)
        for start, jacobian in paths[layer.writes.output].items()
    }
    return RowNorms(local, whole)


def _jacobians(
    layer: Layer, section: Section, base: RowBase
) -> dict[str, Array | None]:
    """Derivatives of a section in its sources; None stands for the identity."""
    if section.norm is not None:
        (source,) = section.sources
        return {source: norm_jacobian(section.norm, base.rows[source])}
    identity = jnp.eye(layer.attention.query.shape[2], dtype=jnp.float64)
    found = pull(section.program, base.rows, {section.name: identity})
    jacobians = {source: found[source] for source in section.sources}
    return {k: None if x is identity else x for k, x in jacobians.items()}


def _compose(
    layer: Layer,
    paths: dict[str, dict[str, Array | None]],
    jacobians: dict[str, Array | None],
) -> dict[str, Array | None]:
    """Derivatives in the rows before any bend, from those of one more section."""
    found: dict[str, Array | None] = {}
    identity = jnp.eye(layer.attention.query.shape[2], dtype=jnp.float64)
    for source, last in jacobians.items():
        for start, first in paths.get(source, {source: None}).items():
            both = last if first is None else first
            if first is not None and last is not None:
                both = jnp.matmul(last, first, precision=HIGHEST)
            if start in found:
                one = found[start]
                both = (identity if one is None else one) + (
                    identity if both is None else both
                )
            found[start] = both
    return found


def _sum(norms: dict[str, Array]) -> Float[Array, "*rows"]:
    """Sum of the norms over sources, heads side by side among them."""
    terms = [x.sum(axis=-1) if name == "heads" else x for name, x in norms.items()]
    return sum(terms[1:], terms[0])


def _norms(
    layer: Layer,
    base: RowBase,
    source: str,
    jacobian: Float[Array, "..."] | None,
    slop: Float[Array, "..."] | float,
) -> Float[Array, "..."]:
    """Norms of a derivative, for each head where heads are side by side."""
    rows = next(iter(base.rows.values())).shape[:-1]
    if jacobian is None:
        return jnp.ones(rows)
    if source == "heads":
        h = layer.attention.num_heads
        by_head = jacobian.reshape(*jacobian.shape[:-1], h, -1).swapaxes(-3, -2)
        return jnp.broadcast_to(spectral_norms(by_head) + slop, (*rows, h))
    return jnp.broadcast_to(spectral_norms(jacobian) + slop, rows)
