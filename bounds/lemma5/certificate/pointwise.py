"""Changes of rows, and rows after attention: exact centre, its rounding, radius around it.

A substitution replaces one token of the input. Sections are parts of what a layer computes
at one position after attention, corners the rows between them (`sections`); base rows are
those of the unchanged input, and a change from them is known by a ball, a centre and a
radius around it. A row's change goes through sections corner by corner, and the radius is
multiplied by a local Lipschitz constant: the norm of the Jacobian at a base row plus its
variation on the way, by neurons that may change side and the curvature of norms.
docs/certificates.md has the proofs. Arrays broadcast over their leading axes.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bounds.influence.propagation.pointwise import RowBase
from bounds.influence.propagation.query_row import row_products, weighted_rows
from bounds.lemma5.certificate.base_radius import LayerBase, RowRadius
from bounds.lemma5.certificate.norm_gain import (
    Radii,
    Rows,
    norm_gain,
    norm_gains,
    norm_jacobian,
    norm_rounding,
    slope_strays,
    step_strays,
    vector_norms,
)
from bounds.lemma5.certificate.order import least, times
from bounds.lemma5.certificate.sections import (
    Section,
    SectionConstants,
    attended,
    carried_on,
    sections,
    without_sums,
)
from bounds.numbers.norms import contract, spectral_norms
from bounds.numbers.rounding import term_roundoff
from bounds.readings import pull
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Norm, linear

Sizes: TypeAlias = Float[Array, "..."]
# Arrays by the name of a row; Jacobians by the corner that is read, None the identity.
Named: TypeAlias = dict[str, Float[Array, "..."]]
Jacobians: TypeAlias = dict[str, Float[Array, "... out read"] | None]

# Changes of a layer's rows by their names: what sections and activations read, the output.
Moved: TypeAlias = Named


@pytree
class Rounding:
    """Bounds on rounding errors of the centre of a row's change, by section."""

    corners: Named  # [...] of what sections write
    # [...] of what their activations read, by its source: to be carried on like a ball.
    read: dict[str, Named]


def carry(
    held: LayerBase, base: RowBase, known: RowRadius, given: Named
) -> tuple[Moved, Rounding]:
    """Changes of rows after attention, given those of input y and heads; their rounding."""
    layer, program = held.layer, held.layer.writes
    moved = program.change(base.rows, given)
    names = ("y", "heads", attended(layer), *program.kept, program.output)
    carried = {name: moved[name] for name in names}
    corners, reads = {}, {}
    for section in without_sums(layer):
        name, norm = section.name, section.norm
        if norm is not None:
            (source,) = section.sources
            row, off = base.rows[source], known.rows[source]
            corners[name] = norm_rounding(norm, row, carried[source], off)
            continue
        numbers = held.constants.sections[name]
        # Products with matrices and the activation's change round by the section's
        # `flow` times the size of the input, even where terms cancel.
        sizes = {x: vector_norms(carried[x]) for x in section.sources}
        terms = [numbers.flow[x] * size for x, size in sizes.items()]
        corners[name] = term_roundoff(section.terms[1]) * sum(terms[1:], terms[0])
        step = section.activation
        if step is not None:
            (row,) = step.inputs
            within = term_roundoff(section.terms[0])
            reads[name] = {x: within * sizes[x] for x in numbers.reads}
            # True preactivations are within their radius of the computed ones.
            around = base.rows[row], carried[row], known.rows[row]
            strays = step_strays(step.operation, *around)
            corners[name] += (strays * numbers.leaves).sum(axis=-1)
    return carried, Rounding(corners, reads)


@pytree
class RowNorms:
    """Norms of Jacobians at base rows: of each section, and of the whole layer."""

    local: dict[str, Named]  # [...], of heads [..., h]
    # Of the output, by the rows before the first norm or map; {} if one section is all.
    whole: Named


def row_norms(held: LayerBase, base: RowBase) -> RowNorms:
    """Norms of the Jacobians of the sections and of the layer at base rows."""
    layer, constants = held.layer, held.constants.sections
    local, slops, paths = {}, {}, {}
    for section in without_sums(layer):
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
    # The norms of a single section are those of the layer.
    if not local or len(local) == 1:
        return RowNorms(local, {})
    slop = jnp.zeros(())
    # A factor's slop is multiplied with the other factors along a path.
    for name, own in slops.items():
        others = (_sum(local[x]) for x in local if x != name)
        slop = slop + math.prod((1 + x for x in others), start=own)
    whole = {
        start: _norms(layer, base, start, jacobian, slop)
        for start, jacobian in paths[layer.writes.output].items()
    }
    return RowNorms(local, whole)


def _jacobians(layer: Layer, section: Section, base: RowBase) -> Jacobians:
    """Jacobians of a section by the corner that it reads; None stands for the identity."""
    if section.norm is not None:
        (source,) = section.sources
        return {source: norm_jacobian(section.norm, base.rows[source])}
    identity = jnp.eye(layer.attention.query.shape[2], dtype=jnp.float64)
    found = pull(section.program, base.rows, {section.name: identity})
    jacobians = {source: found[source] for source in section.sources}
    # A `Sum` hands its cotangents on as they are, so that an untouched source shows.
    return {k: None if x is identity else x for k, x in jacobians.items()}


def _compose(
    layer: Layer, paths: dict[str, Jacobians], jacobians: Jacobians
) -> Jacobians:
    """Jacobians of a section's row in the layer's inputs: `jacobians` times `paths`."""
    found: Jacobians = {}
    identity = jnp.eye(layer.attention.query.shape[2], dtype=jnp.float64)
    for source, last in jacobians.items():
        for start, first in paths.get(source, {source: None}).items():
            both = last if first is None else first
            if first is not None and last is not None:
                both = contract("...ij,...jk->...ik", last, first)
            if start in found:
                one = found[start]
                both = identity if both is None else both
                both = (identity if one is None else one) + both
            found[start] = both
    return found


def _sum(norms: Named) -> Float[Array, "*rows"]:
    """Sum of a section's Jacobian norms over the corners it reads, and over heads."""
    terms = [x.sum(axis=-1) if name == "heads" else x for name, x in norms.items()]
    return sum(terms[1:], terms[0])


def _norms(
    layer: Layer,
    base: RowBase,
    source: str,
    jacobian: Sizes | None,
    slop: Sizes | float,
) -> Sizes:
    """Spectral norms of a Jacobian plus rounding `slop`; 1 for None; by head for "heads"."""
    rows = next(iter(base.rows.values())).shape[:-1]
    if jacobian is None:
        return jnp.ones(rows)
    if source == "heads":
        h = layer.attention.num_heads
        # [..., width, heads d_v] to [..., heads, width, d_v]: one Jacobian for each
        # head.
        by_head = jacobian.reshape(*jacobian.shape[:-1], h, -1).swapaxes(-3, -2)
        return jnp.broadcast_to(spectral_norms(by_head) + slop, (*rows, h))
    return jnp.broadcast_to(spectral_norms(jacobian) + slop, rows)


@dataclasses.dataclass(frozen=True)
class BaseRows:
    """Base rows, norms of the layer's Jacobians there, and the base rows' own radii."""

    rows: Named
    norms: RowNorms  # of their Jacobians
    radius: Named  # how far they are from the true ones


def carry_radius(
    held: LayerBase,
    base: BaseRows,
    carried: Moved,
    rounding: Rounding,
    balls: Named,
) -> Sizes:
    """Radius of the output rows' changes around the centres `carried`, with rounding."""
    # `balls` begins as the radii of the layer's input and of the attended rows
    # (`entering`).
    balls, strays, norms = dict(balls), {}, base.norms
    constants, output = held.constants.sections, held.layer.writes.output
    for section in sections(held.layer):
        name, local = section.name, norms.local.get(section.name)
        if local is None:  # sums, at the start
            balls[name] = carried_on(constants[name].gains, balls)
            continue
        if section.norm is not None:
            (source,) = section.sources
            row, known = base.rows[source], base.radius[source]
            around = row, carried[source], balls[source], known
            gain, bend = norm_gains(section.norm, *around)
            off = bend * balls[source]
            # Two outputs of a norm are no further apart, whatever enters it.
            apart = 2 * section.norm.largest * math.sqrt(row.shape[-1])
            ball = least(times(gain, balls[source]), apart)
        else:
            off = _flips(section, constants[name], base, carried, rounding, balls)
            anywhere = carried_on(constants[name].gains, balls)
            ball = least(_along(local, balls) + off, anywhere)
        # M' = N' B' ... differs from the base's M by its factors, one after the other.
        strays[name] = _along(local, strays) + off + rounding.corners[name]
        balls[name] = ball + rounding.corners[name]
    if not norms.whole:
        return balls[output]
    # The balls section by section, or the whole Jacobian at the base row and what each
    # section strays from its own.
    return least(balls[output], _along(norms.whole, balls) + strays[output])


def _along(norms: Named, balls: Named) -> Sizes:
    """Sum of Jacobian norms times radii `balls`, over the rows named in both."""
    found = jnp.zeros(())
    for name, norm in norms.items():
        if name == "heads" and name in balls:
            # Heads are the last axis of norms, but the first of radii.
            found = found + (jnp.moveaxis(norm, -1, 0) * balls[name]).sum(axis=0)
        elif name in balls:
            found = found + norm * balls[name]
    return found


def _flips(
    section: Section,
    constants: SectionConstants,
    base: BaseRows,
    carried: Moved,
    rounding: Rounding,
    balls: Named,
) -> Sizes:
    """Radius added by neurons whose slope may differ from the slope at the base row."""
    step = section.activation
    if step is None:
        return jnp.zeros(())
    (row,) = step.inputs
    around = {x: balls[x] + off for x, off in rounding.read[section.name].items()}
    spread = carried_on(constants.reads, around) + base.radius[row]
    strays = slope_strays(step.operation, base.rows[row], carried[row], spread)

    def flips(reads: Sizes) -> Sizes:
        # Sums over neurons; weights of heads give a last axis.
        weight = constants.leaves * reads.T
        one = weight.ndim == 1
        return (strays * weight).sum(axis=-1) if one else linear(strays, weight)

    # Source by source: no spread is held beside the one that the slopes were asked for.
    return _along({x: flips(reads) for x, reads in constants.reads.items()}, balls)


Slots: TypeAlias = Int[Array, "substitutions"]
Moves: TypeAlias = Float[Array, "substitutions width"]
BySubstitution: TypeAlias = Float[Array, "substitutions"]


@pytree
class MovedRows:
    """Centres and radii of the changes of all rows of a layer, per substitution."""

    position: Slots  # the substituted positions
    centre: Float[Array, "tokens width substitutions"]
    radius: Float[Array, "tokens substitutions"]

    def take(self, at: Slots) -> tuple[Moves, BySubstitution]:
        """Centre and radius of the change of row at[p], for each substitution p."""
        slot = jnp.arange(self.radius.shape[1], dtype=jnp.int32)
        # Integer indices on both sides of a slice put the substitutions first.
        return self.centre[at, :, slot], self.radius[at, slot]

    def formed(self) -> Float[Array, "tokens width substitutions"]:
        """Centres of all rows' changes, formed as one array; score functions ask for it."""
        return self.centre

    def products(
        self, queries: Float[Array, "heads width substitutions"]
    ) -> Float[Array, "heads keys substitutions"]:
        """Inner products of queries [h, :, p] with the centres [k, :, p] of rows' changes."""
        return row_products(queries, self.centre)

    def once(
        self, function: Callable[..., Array], *arguments: Any
    ) -> Float[Array, "..."]:
        """Value of function(*arguments), computed anew: nothing is cached."""
        return function(*arguments)

    def weighted(
        self, weights: Float[Array, "heads substitutions keys"]
    ) -> Float[Array, "heads substitutions width"]:
        """Sums of the rows' centres with attention weights, by head and substitution."""
        return weighted_rows(weights.transpose(2, 0, 1), self.centre).swapaxes(1, 2)

    def substituted(self) -> "OwnMove":
        """Centre and radius of the change of each substitution's own row."""
        return OwnMove(self.position, *self.take(self.position))


@pytree
class OwnMove:
    """Centre and radius of the change of the substituted row i, for each substitution."""

    position: Slots
    centre: Moves
    radius: BySubstitution


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
def put_row(
    moved: MovedRows, at: Slots, centre: Moves, radius: BySubstitution
) -> MovedRows:
    """`moved` with centre and radius of row at[p] replaced, for each substitution p."""
    slot = jnp.arange(moved.radius.shape[1], dtype=jnp.int32)
    return dataclasses.replace(
        moved,
        centre=moved.centre.at[at, :, slot].set(centre),
        radius=moved.radius.at[at, slot].set(radius),
    )
