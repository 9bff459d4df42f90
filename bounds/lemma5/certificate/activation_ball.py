"""Activations in certificates: deviation of slopes and steps within a radius."""

import functools
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.order import least, surely_above
from bounds.readings.rules import no_rule
from jax_models.model.rows import Operation, Relu, Steady

Neurons: TypeAlias = Float[Array, "*#rows d_ff"]
OwnNeurons: TypeAlias = Float[Array, "*rows d_ff"]


def slope_width(operation: Steady) -> float:
    """Width of the interval of an activation's slopes."""
    return 2 * operation.steepest - 1


@functools.singledispatch
def step_strays(
    operation: Operation, z: Neurons, moved: Neurons, known: Neurons
) -> Neurons:
    """Largest error of an activation's step act(z + dz) - act(z), for z off by `known`.

    For ReLU the two integrals of the slope over [z, z + dz] differ on an interval no longer
    than `known`, and only if zero is within `known` of the segment.
    """
    raise no_rule("step_strays", operation)


@step_strays.register
def _(operation: Relu, z: Neurons, moved: Neurons, known: Neurons) -> Neurons:
    ends = (z, z + moved)
    above, below = (
        surely_above(sign * ends[0], known) & surely_above(sign * ends[1], known)
        for sign in (1, -1)
    )
    return jnp.where(above | below, 0.0, least(jnp.abs(moved), known))


@step_strays.register
def _(operation: Steady, z: Neurons, moved: Neurons, known: Neurons) -> Neurons:
    return least(operation.curvature * known, slope_width(operation)) * jnp.abs(moved)


@functools.singledispatch
def slope_strays(
    operation: Operation, z: Neurons, moved: Neurons, spread: Neurons
) -> Neurons:
    """Largest distance of the slope within z + moved ± spread from that at z."""
    raise no_rule("slope_strays", operation)


@slope_strays.register
def _(operation: Relu, z: Neurons, moved: Neurons, spread: Neurons) -> Neurons:
    end = z + moved
    active = surely_above(z, 0.0)
    kept = surely_above(jnp.where(active, end, -end), spread)
    return 1.0 - kept.astype(z.dtype)


@slope_strays.register
def _(operation: Steady, z: Neurons, moved: Neurons, spread: Neurons) -> Neurons:
    bend = operation.curvature * (jnp.abs(moved) + spread)
    return least(bend, slope_width(operation))


@functools.singledispatch
def steepest_within(
    operation: Operation, z: OwnNeurons, radius: OwnNeurons
) -> OwnNeurons:
    """Largest slope within a radius of preactivations."""
    raise no_rule("steepest_within", operation)


@steepest_within.register
def _(operation: Relu, z: OwnNeurons, radius: OwnNeurons) -> OwnNeurons:
    return 1.0 - surely_above(-z, radius).astype(z.dtype)


@steepest_within.register
def _(operation: Steady, z: OwnNeurons, radius: OwnNeurons) -> OwnNeurons:
    return jnp.full_like(z, operation.steepest)
