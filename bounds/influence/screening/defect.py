"""Defects: bounds on operations' changes beyond their derivative at the base.

A screen is an estimate of the effect of replacing a token, with a bound on the error.
Base values are those of the unchanged input; an operation is a norm, activation, affine
map, ... of a layer. A row that it reads moves by a known change p, then by an unknown
one e, |e| <= b. Of e only the bound b is known.

Source: docs/screened.md, sections 2.7 and 2.8.
"""

import functools
import math
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from bounds.numbers.norms import spectral_norms
from bounds.readings import no_rule
from jax_models.model.rows import (
    Activation,
    Affine,
    Join,
    Norm,
    Operation,
    Product,
    Relu,
    Steady,
    Sum,
)

# Of f(z) = z / s(z), z as the norm centres it, s = sqrt(|z|^2 / d + epsilon):
#     D^2 f(z)[e, e] = -(2 e (z.e) + z |e|^2) / (d s^3) + 3 z (z.e)^2 / (d^2 s^5).
# Its norm, with rho = |z|^2 / (d s^2) <= 1 and c = cos(z, e), is |e|^2 / (sqrt(d) s^2) times
# sqrt(rho ((1 + 2 c^2 - 3 rho c^2)^2 + 4 c^2 (1 - c^2))), at most this number. A symmetric
# bilinear map is as large on equal arguments as on any.
SECOND_DERIVATIVE = 2 / math.sqrt(3)


def norm_defect(
    norm: Norm,
    rows: Float[Array, "rows width"],
    known: Float[Array, "rows width substitutions"],
    unknown: Float[Array, "rows substitutions"],
) -> tuple[Float[Array, "rows substitutions"], Float[Array, "rows substitutions"]]:
    """Bounds on a normalisation's change by e: beyond base derivative, and in all."""
    # First |f(z + p + e) - f(z + p) - Df(z) e|, for |e| <= unknown; then both
    # |f(z + p + e) - f(z + p)| and |Df(z) e|.
    width, gain = math.sqrt(norm.scale.shape[0]), norm.largest
    size = jnp.linalg.norm(known, axis=1)
    base = rows[:, None]
    before, after = (
        norm.deviation(norm.centre(x))[..., 0]
        for x in (base, base + known.swapaxes(1, 2))
    )

    def inverse(
        deviation: Float[Array, "rows substitutions"],
    ) -> Float[Array, "rows substitutions"]:
        least = jnp.maximum(deviation, math.sqrt(norm.epsilon))
        return jnp.where(least > 0, 1 / jnp.where(least > 0, least, 1), jnp.inf)

    # s is 1/sqrt(d)-Lipschitz: on a path of length |p| + |e| from z, and on one of length |e|
    # from z + p, it stays above these.
    inside = inverse(before - (size + unknown) / width)
    there = inverse(after - unknown / width)
    curved = SECOND_DERIVATIVE / width * inside**2 * (size + unknown / 2)
    # The change and the derivative by e, each by its own size.
    factor = jnp.minimum(curved, there + 1 / before)
    # An infinite factor times a change of 0 would be NaN; a change that is no number stays.
    defect, moved = (
        jnp.where(unknown == 0, 0.0, gain * x * unknown) for x in (factor, there)
    )
    by_derivative = gain * unknown / before
    moved = jnp.minimum(by_derivative + defect, moved)
    return defect, jnp.maximum(by_derivative, moved)


# Bounds by row or row's entry, and by part of a row.
Defects: TypeAlias = Float[Array, "rows *width substitutions"]
Reach: TypeAlias = Float[Array, "..."]


class Moved(NamedTuple):
    """Rows that an operation reads: base, known change, bound on the unknown change."""

    base: Float[Array, "rows width"]
    known: Float[Array, "rows width substitutions"]
    # Bounds on the unknown change's norm, or on its entries for entrywise operations.
    reach: Float[Array, "rows *width substitutions"]


@functools.singledispatch
def defect(operation: Operation, *rows: Moved) -> Defects:
    """Bounds on an operation's change by e beyond base derivative; see `entrywise`."""
    raise no_rule("defect", operation)


def entrywise(operation: Operation) -> bool:
    """True for activations and products, whose `defect` bounds each entry apart."""
    return isinstance(operation, Activation | Product)


@defect.register
def _(operation: Relu, *rows: Moved) -> Defects:
    ((base, known, reach),) = rows
    # With w = u + p and D = 1[u > 0] the base's slope:
    #     |relu(w + e) - relu(w) - D e| <= min(b, max(0, b - w)),
    # and -w in place of w if D = 0.
    slope = operation.slope(base)[..., None]
    return jnp.clip(reach - (2 * slope - 1) * (base[..., None] + known), 0, reach)


@defect.register
def _(operation: Activation, *rows: Moved) -> Defects:
    ((_, known, reach),) = rows
    # Slopes differ by at most the curvature times the way: c (|p| b + b^2 / 2).
    return operation.curvature * (jnp.abs(known) + reach / 2) * reach


@defect.register
def _(operation: Steady, *rows: Moved) -> Defects:
    ((_, known, reach),) = rows
    curved = operation.curvature * (jnp.abs(known) + reach / 2)
    # All slopes lie in [1 - s, s], s the steepest.
    return jnp.minimum(curved, 2 * operation.steepest - 1) * reach


@defect.register
def _(operation: Norm, *rows: Moved) -> Defects:
    return norm_defect(operation, *rows[0])[0]


@defect.register
def _(operation: Product, *rows: Moved) -> Defects:
    (_, p, e), (_, q, f) = rows
    # (x + p + e)(y + q + f) - (x + p)(y + q) - y e - x f = e q + p f + e f.
    return e * jnp.abs(q) + jnp.abs(p) * f + e * f


@functools.singledispatch
def gain(operation: Operation, at: tuple[Any, ...], *reach: Reach) -> Reach:
    """Upper bounds on an operation's change as inputs move from `at` by `reach`."""
    # `at` are the inputs [i, d] of a nonlinear operation where the change begins; `reach`
    # bounds the changes of its inputs, or of parts of equal width [p, i].
    raise no_rule("gain", operation)


@gain.register
def _(operation: Affine, at: tuple[Any, ...], *reach: Reach) -> Reach:
    # Every part of the input has columns of its own: |W e| <= sum over parts of |W_p| |e_p|.
    (parts,) = reach
    weight = operation.weight
    weight = weight.reshape(weight.shape[0], parts.shape[0], -1).swapaxes(0, 1)
    return (spectral_norms(weight)[:, None] * parts).sum(axis=0, keepdims=True)


@gain.register
def _(operation: Sum, at: tuple[Any, ...], *reach: Reach) -> Reach:
    one, two = reach
    return one + two


@gain.register
def _(operation: Join, at: tuple[Any, ...], *reach: Reach) -> Reach:
    # Parts side by side are orthogonal.
    parts = jnp.concatenate(reach)
    return jnp.linalg.norm(parts, axis=0, keepdims=True)


@gain.register
def _(operation: Activation, at: tuple[Any, ...], *reach: Reach) -> Reach:
    (moved,) = reach
    # On the way the slope grows by at most the curvature times the way.
    steep = jnp.abs(operation.slope(*at)).max(axis=-1) + operation.curvature * moved
    return jnp.where(moved == 0, 0.0, steep * moved)


@gain.register
def _(operation: Steady, at: tuple[Any, ...], *reach: Reach) -> Reach:
    (moved,) = reach
    return operation.steepest * moved


@gain.register
def _(operation: Norm, at: tuple[Any, ...], *reach: Reach) -> Reach:
    ((row,), (moved,)) = at, reach
    return norm_defect(operation, row, jnp.zeros_like(row)[..., None], moved.T)[1].T


@gain.register
def _(operation: Product, at: tuple[Any, ...], *reach: Reach) -> Reach:
    (one, two), (by_one, by_two) = (jnp.abs(x).max(axis=-1) for x in at), reach
    return by_one * two + one * by_two + by_one * by_two
