"""The slope of a row program at its base: cotangents pulled back through its steps."""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from bounds.readings.rules import no_rule
from jax_models.model.rows import (
    Activation,
    Affine,
    Join,
    Norm,
    Operation,
    Product,
    Program,
    Sum,
)

HIGHEST = jax.lax.Precision.HIGHEST


@functools.singledispatch
def slope(
    operation: Operation, base: tuple[Array | None, ...], cotangents: Array
) -> tuple[Array, ...]:
    """Returns cotangents of what an operation reads, from those of what it writes.

    Args:
        operation: the operation.
        base: what it reads [r, d]; None of a linear one where it is not known.
        cotangents: of what it writes [c, d], or [r, c, d] of every row.
    """
    raise no_rule("slope", operation)


@slope.register
def _(operation: Affine, base, cotangents: Array) -> tuple[Array, ...]:
    return (jnp.matmul(cotangents, operation.weight, precision=HIGHEST),)


@slope.register
def _(operation: Sum, base, cotangents: Array) -> tuple[Array, ...]:
    return cotangents, cotangents


@slope.register
def _(operation: Join, base, cotangents: Array) -> tuple[Array, ...]:
    return cotangents[..., : operation.width], cotangents[..., operation.width :]


@slope.register
def _(operation: Activation, base, cotangents: Array) -> tuple[Array, ...]:
    return (cotangents * operation.slope(*base)[:, None],)


@slope.register
def _(operation: Product, base, cotangents: Array) -> tuple[Array, ...]:
    one, two = base
    return cotangents * two[:, None], cotangents * one[:, None]


@slope.register
def _(operation: Norm, base, cotangents: Array) -> tuple[Array, ...]:
    (row,) = base
    z = operation.centre(row)
    z, s = z[:, None], operation.deviation(z)[:, None]
    scaled = cotangents * operation.scale
    along = (scaled * z).mean(axis=-1, keepdims=True)
    # The projection that centres is its own transpose.
    return (operation.centre(scaled) / s - z * along / s**3,)


def pull(
    program: Program, base: Mapping[str, Array], given: Mapping[str, Array]
) -> dict[str, Array]:
    """Returns cotangents of all rows that lead to those given, by name.

    Args:
        program: the row program.
        base: its rows; those that `bent` steps read must be there [r, d].
        given: cotangents of some of its rows [c, d] or [r, c, d].
    """
    found = dict(given)
    for step in reversed(program.steps):
        if step.name not in found:
            continue
        reads = tuple(base.get(name) for name in step.inputs)
        pulled = slope(step.operation, reads, found[step.name])
        for name, cotangents in zip(step.inputs, pulled, strict=True):
            found[name] = found[name] + cotangents if name in found else cotangents
    return found
