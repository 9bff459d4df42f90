"""What changes are rounded relative to, step by step: their terms before they cancel.

What comes into a step is off in any direction, not in that of the change alone: where the
step annihilates the change, what it writes is rounding. Sizes are of each entry of a row. Of
errors that have nothing to do with one another a matrix makes the root of their squares,
sqrt(sum_k W_jk^2 e_k^2), as `influence.noise` samples it, and so does a sum. Rows before the
change may lack the axes ahead.
"""

import functools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.sizes import scaled_norm
from bounds.influence.targets import TargetOperation
from jax_models.model.rows import (
    Activation,
    Affine,
    Norm,
    Operation,
    Product,
    Program,
    Step,
    Sum,
    Tanh,
    linear,
)

Rows = Sequence[Array]


@functools.singledispatch
def carried_rounding(
    operation: Operation, rows: Rows, moved: Rows, sizes: Rows
) -> Array:
    """Returns what the change that an operation writes is rounded relative to [..., d].

    Of one that is not known here, what its derivative behind the change makes of sizes.

    Args:
        operation: of rows.
        rows: what it reads [d], or [..., d]; of linear operations not looked at.
        moved: the changes of that [..., d].
        sizes: what those are rounded relative to [..., d].
    """
    if operation.linear:
        return jnp.abs(operation.change(*sizes))
    after = tuple(x + y for x, y in zip(rows, moved, strict=True))
    return jnp.abs(jax.jvp(operation, after, tuple(sizes))[1])


@carried_rounding.register
def _(operation: Affine, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    return root_of_squares(sizes[0], operation.weight)


@carried_rounding.register
def _(operation: Norm, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    # Either term of a norm's change is about this, and one cancels the other where a row is
    # drawn out or together; a row that is far from its mean's origin is off by more.
    after, root = rows[0] + moved[0], math.sqrt(moved[0].shape[-1])
    centred = operation.centre(after)
    spread = operation.deviation(centred)
    spread = jnp.where(spread > 0, spread, 1)
    far = jnp.maximum(scaled_norm(after)[..., None] / (root * spread), 1)
    # What is drawn out, and what the mean moves, are of all entries.
    drawn = jnp.hypot(centred / spread, 1) * (scaled_norm(sizes[0])[..., None] / root)
    return jnp.abs(operation.scale) / spread * far * jnp.hypot(sizes[0], drawn)


@carried_rounding.register
def _(operation: Activation, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    ends = operation.slope(rows[0]), operation.slope(rows[0] + moved[0])
    return jnp.maximum(*map(jnp.abs, ends)) * sizes[0]


@carried_rounding.register
def _(operation: Tanh, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    # Its slope falls to either side of 0: the end that is nearer, or 0 between them.
    row, after = rows[0], rows[0] + moved[0]
    nearest = jnp.minimum(jnp.abs(row), jnp.abs(after))
    nearest = jnp.where(row * after > 0, nearest, 0)
    return operation.slope(nearest) * sizes[0]


@carried_rounding.register
def _(operation: TargetOperation, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    steep = operation.lipschitz(moved[0].shape[-1])
    return steep * scaled_norm(sizes[0])[..., None]


@carried_rounding.register
def _(operation: Sum, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    return jnp.hypot(*sizes)


@carried_rounding.register
def _(operation: Product, rows: Rows, moved: Rows, sizes: Rows) -> Array:
    (one, two), (_, by_two) = rows, moved
    return jnp.hypot(sizes[0] * (jnp.abs(two) + jnp.abs(by_two)), one * sizes[1])


def base_terms(
    program: Program, base: Mapping[str, Array], given: Mapping[str, Array]
) -> dict[str, Array]:
    """Returns what rows are rounded relative to [..., d], not below their own size.

    What their terms come to before they cancel, by the rules of changes: those of rows that
    are given, carried to all that are read of those and are in the base.

    Args:
        program: of rows.
        base: rows of it.
        given: terms of some.
    """
    found = dict(given)
    for step in program.steps:
        operation, there = step.operation, all(name in found for name in step.inputs)
        if step.name not in base or not there or isinstance(operation, TargetOperation):
            continue
        terms = [found[name] for name in step.inputs]
        rows = [] if operation.linear else [base[name] for name in step.inputs]
        still = [jnp.zeros_like(x) for x in rows]
        carried = carried_rounding(operation, rows, still, terms)
        if isinstance(operation, Affine) and operation.bias is not None:
            carried = jnp.hypot(carried, operation.bias)
        found[step.name] = jnp.maximum(jnp.abs(base[step.name]), carried)
    return found


def by_base(
    operation: Operation, rows: Rows, moved: Rows, terms: Rows
) -> Array | float:
    """Returns what a change is rounded relative to by the rows before it [..., d].

    A factor, or what a smooth activation reads, may cancel to far less than its terms: it is
    off by those, and the change by what that does to a factor of it. Kinks count in the
    steps (`numbers.rounding`).

    Args:
        operation: of rows.
        rows: what it reads.
        moved: the changes of that.
        terms: what it is rounded relative to.
    """
    if isinstance(operation, Product):
        (by_one, by_two), (one, two) = moved, terms
        return jnp.hypot(by_one * two, by_two * one)
    if isinstance(operation, Activation) and operation.smooth:
        before, after = operation.slope(rows[0]), operation.slope(rows[0] + moved[0])
        return jnp.abs(after - before) * terms[0]
    return 0.0


def root_of_squares(sizes: Array, weight: Array) -> Array:
    """Returns sqrt(sum_k W_jk^2 e_k^2) [..., j], without underflow of the larger squares.

    Args:
        sizes: e [..., k].
        weight: W [j, k].
    """
    largest, most = sizes.max(axis=-1, keepdims=True), jnp.abs(weight).max()
    unit = sizes / jnp.where(largest > 0, largest, 1)
    share = weight / jnp.where(most > 0, most, 1)
    return largest * (most * jnp.sqrt(linear(unit * unit, share * share)))


def carry_step(
    step: Step,
    base: Mapping[str, Array],
    moved: Mapping[str, Array],
    sizes: Mapping[str, Array],
    terms: Mapping[str, Array],
) -> Array:
    """Returns what a step's change is rounded relative to [..., d], at least its own size.

    Args:
        step: of a program.
        base: the rows that it reads, where it is not linear.
        moved: the changes of those, and its own.
        sizes: of what it reads.
        terms: of `base_terms`; a row that has none is its own.
    """
    names, own = step.inputs, jnp.abs(moved[step.name])
    rows = () if step.operation.linear else tuple(base[name] for name in names)
    changes, read = (tuple(x[name] for name in names) for x in (moved, sizes))
    found = carried_rounding(step.operation, rows, changes, read)
    if isinstance(step.operation, Activation | Product):
        before = [terms.get(name, jnp.abs(base[name])) for name in names]
        found = jnp.hypot(found, by_base(step.operation, rows, changes, before))
    # Of a target the norm alone.
    wide = found.shape[-1] == own.shape[-1]
    return jnp.maximum(found, own if wide else scaled_norm(own)[..., None])


def carry_change(
    program: Program,
    base: Mapping[str, Array],
    given: Mapping[str, Array],
    sizes: Mapping[str, Array],
    terms: Mapping[str, Array],
) -> tuple[Array, Array]:
    """Returns the change of a program's output, and what it is rounded relative to [..., d].

    Args:
        program: of rows.
        base: as in `Program.change`.
        given: likewise.
        sizes: what those are rounded relative to.
        terms: as in `carry_step`.
    """
    moved, sizes = program.change(base, given), dict(sizes)
    for step in program.steps:
        sizes[step.name] = carry_step(step, base, moved, sizes, terms)
    return moved[program.output], sizes[program.output]
