"""The slope of a row program at its base: cotangents pulled back through its steps."""

import functools
from collections.abc import Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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


Cotangents: TypeAlias = Float[Array, "... outputs _"]


@functools.singledispatch
def slope(
    operation: Operation,
    base: tuple[Float[Array, "rows d_read"] | None, ...],
    cotangents: Cotangents,
) -> tuple[Cotangents, ...]:
    """Cotangents of the rows that an operation reads, from those of the row it writes.

    A row of `base` is None where the operation is linear and the row is not known.
    """
    raise no_rule("slope", operation)


@slope.register
def _(operation: Affine, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return (jnp.matmul(cotangents, operation.weight, precision=HIGHEST),)


@slope.register
def _(operation: Sum, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return cotangents, cotangents


@slope.register
def _(operation: Join, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return cotangents[..., : operation.width], cotangents[..., operation.width :]


@slope.register
def _(operation: Activation, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return (cotangents * operation.slope(*base)[:, None],)


@slope.register
def _(operation: Product, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    one, two = base
    return cotangents * two[:, None], cotangents * one[:, None]


@slope.register
def _(operation: Norm, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
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
    """Cotangents of all rows that lead to those given, by name.

    `base` must hold the rows [rows, width] that nonlinear steps read; `given` holds
    cotangents [outputs, width], or [rows, outputs, width] of every row.
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
