"""Activations in certificates: how far slopes and steps stray within a radius."""

import functools

import jax.numpy as jnp
from jax import Array

from bounds.lemma5.certificate.order import least, surely_above
from bounds.readings.rules import no_rule
from jax_models.model.rows import Operation, Relu, Steady


def slope_width(operation: Steady) -> float:
    """Returns the width of the interval of an activation's slopes."""
    return 2 * operation.steepest - 1


@functools.singledispatch
def step_strays(operation: Operation, z: Array, moved: Array, known: Array) -> Array:
    """Returns how far the step of an activation may be from that of the true base.

    act(z + dz) - act(z) for two z at most `known` apart. For ReLU the two integrals of
    the slope over [z, z + dz] differ on an interval no longer than that, and only if
    zero is within `known` of the segment.

    Args:
        operation: the activation.
        z: preactivations at the base [..., f].
        moved: their change dz.
        known: radius of z.
    """
    raise no_rule("step_strays", operation)


@step_strays.register
def _(operation: Relu, z: Array, moved: Array, known: Array) -> Array:
    ends = (z, z + moved)
    above, below = (
        surely_above(sign * ends[0], known) & surely_above(sign * ends[1], known)
        for sign in (1, -1)
    )
    return jnp.where(above | below, 0.0, least(jnp.abs(moved), known))


@step_strays.register
def _(operation: Steady, z: Array, moved: Array, known: Array) -> Array:
    return least(operation.curvature * known, slope_width(operation)) * jnp.abs(moved)


@functools.singledispatch
def slope_strays(operation: Operation, z: Array, moved: Array, spread: Array) -> Array:
    """Returns how far the slope may be from its value at z within z + moved ± spread.

    Args:
        operation: the activation.
        z: preactivations at the base [..., f].
        moved: the centre's change of them.
        spread: radius around the centre.
    """
    raise no_rule("slope_strays", operation)


@slope_strays.register
def _(operation: Relu, z: Array, moved: Array, spread: Array) -> Array:
    end = z + moved
    active = surely_above(z, 0.0)
    kept = surely_above(jnp.where(active, end, -end), spread)
    return 1.0 - kept.astype(z.dtype)


@slope_strays.register
def _(operation: Steady, z: Array, moved: Array, spread: Array) -> Array:
    bend = operation.curvature * (jnp.abs(moved) + spread)
    return least(bend, slope_width(operation))


@functools.singledispatch
def steepest_within(operation: Operation, z: Array, radius: Array) -> Array:
    """Returns the largest slope within a radius of preactivations [..., f].

    Args:
        operation: the activation.
        z: preactivations [..., f].
        radius: of them.
    """
    raise no_rule("steepest_within", operation)


@steepest_within.register
def _(operation: Relu, z: Array, radius: Array) -> Array:
    return 1.0 - surely_above(-z, radius).astype(z.dtype)


@steepest_within.register
def _(operation: Steady, z: Array, radius: Array) -> Array:
    return jnp.full_like(z, operation.steepest)
