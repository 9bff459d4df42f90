"""Activations in certificates: deviation of slopes and steps within a radius."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.order import least, surely_above
from bounds.readings.rules import no_rule
from jax_models.model.rows import Operation, Relu, Steady


def slope_width(operation: Steady) -> float:
    """Width of the interval of an activation's slopes."""
    return 2 * operation.steepest - 1


@functools.singledispatch
def step_strays(
    operation: Operation,
    z: Float[Array, "*#rows d_ff"],
    moved: Float[Array, "*#rows d_ff"],
    known: Float[Array, "*#rows d_ff"],
) -> Float[Array, "*#rows d_ff"]:
    """Largest error of an activation's step act(z + dz) - act(z), for z off by `known`.

    For ReLU the two integrals of the slope over [z, z + dz] differ on an interval no longer
    than `known`, and only if zero is within `known` of the segment.
    """
    raise no_rule("step_strays", operation)


@step_strays.register
def _(
    operation: Relu,
    z: Float[Array, "*#rows d_ff"],
    moved: Float[Array, "*#rows d_ff"],
    known: Float[Array, "*#rows d_ff"],
) -> Float[Array, "*#rows d_ff"]:
    ends = (z, z + moved)
    above, below = (
        surely_above(sign * ends[0], known) & surely_above(sign * ends[1], known)
        for sign in (1, -1)
    )
    return jnp.where(above | below, 0.0, least(jnp.abs(moved), known))


@step_strays.register
def _(
    operation: Steady,
    z: Float[Array, "*#rows d_ff"],
    moved: Float[Array, "*#rows d_ff"],
    known: Float[Array, "*#rows d_ff"],
) -> Float[Array, "*#rows d_ff"]:
    return least(operation.curvature * known, slope_width(operation)) * jnp.abs(moved)


@functools.singledispatch
def slope_strays(
    operation: Operation,
    z: Float[Array, "*#rows d_ff"],
    moved: Float[Array, "*#rows d_ff"],
    spread: Float[Array, "*#rows d_ff"],
) -> Float[Array, "*#rows d_ff"]:
    """Largest distance of the slope within z + moved ± spread from that at z."""
    raise no_rule("slope_strays", operation)


@slope_strays.register
def _(
    operation: Relu,
    z: Float[Array, "*#rows d_ff"],
    moved: Float[Array, "*#rows d_ff"],
    spread: Float[Array, "*#rows d_ff"],
) -> Float[Array, "*#rows d_ff"]:
    end = z + moved
    active = surely_above(z, 0.0)
    kept = surely_above(jnp.where(active, end, -end), spread)
    return 1.0 - kept.astype(z.dtype)


@slope_strays.register
def _(
    operation: Steady,
    z: Float[Array, "*#rows d_ff"],
    moved: Float[Array, "*#rows d_ff"],
    spread: Float[Array, "*#rows d_ff"],
) -> Float[Array, "*#rows d_ff"]:
    bend = operation.curvature * (jnp.abs(moved) + spread)
    return least(bend, slope_width(operation))


@functools.singledispatch
def steepest_within(
    operation: Operation,
    z: Float[Array, "*rows d_ff"],
    radius: Float[Array, "*rows d_ff"],
) -> Float[Array, "*rows d_ff"]:
    """Largest slope within a radius of preactivations."""
    raise no_rule("steepest_within", operation)


@steepest_within.register
def _(
    operation: Relu, z: Float[Array, "*rows d_ff"], radius: Float[Array, "*rows d_ff"]
) -> Float[Array, "*rows d_ff"]:
    return 1.0 - surely_above(-z, radius).astype(z.dtype)


@steepest_within.register
def _(
    operation: Steady, z: Float[Array, "*rows d_ff"], radius: Float[Array, "*rows d_ff"]
) -> Float[Array, "*rows d_ff"]:
    return jnp.full_like(z, operation.steepest)
