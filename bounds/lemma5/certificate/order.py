"""Comparisons of bounds where what is not a number bounds nothing: it counts as +inf.

A comparison with NaN is false, and a `where` then takes one of its branches as if
something were known; an overflowed denominator makes a gain of 0. So the package compares
through these functions alone (`tests/bounds/lemma5/certificate/test_order.py` reads the
source), and each says what it does with what is not a number.
"""

import functools

import jax.numpy as jnp
from jax import Array


def bounded(upper: Array) -> Array:
    """Returns an upper bound, +inf where it is not a number."""
    return jnp.where(jnp.isnan(upper), jnp.inf, upper)


def resting_on(upper: Array, *computed: Array) -> Array:
    """Returns an upper bound, +inf where it or what it rests on is not finite.

    For numbers whose overflow would not show in the bound, such as denominators.
    """
    sound = functools.reduce(jnp.logical_and, map(jnp.isfinite, computed))
    return jnp.where(sound, bounded(upper), jnp.inf)


def times(gain: Array | float, radius: Array) -> Array:
    """Returns gain * radius, 0 where the radius is: an exact zero, nothing is off.

    A gain of 0 beside an infinite radius is not taken as exact: the product is +inf.

    Args:
        gain: a bound on a factor, perhaps infinite or not a number.
        radius: what it multiplies.
    """
    return jnp.where(radius == 0, 0.0, bounded(gain * radius))


def least(*bounds: Array | float) -> Array:
    """Returns the smallest of upper bounds on one number; one that is none is passed over."""
    return bounded(functools.reduce(jnp.fmin, map(jnp.asarray, bounds)))


def greatest(*bounds: Array | float) -> Array:
    """Returns the largest of upper bounds on several numbers, +inf if any is none."""
    return bounded(functools.reduce(jnp.maximum, map(jnp.asarray, bounds)))


def surely_above(one: Array | float, other: Array | float) -> Array:
    """Returns whether one > other; false where either is not a number."""
    return jnp.asarray(one) > other


def perhaps_above(one: Array | float, other: Array | float) -> Array:
    """Returns whether not one <= other; true where either is not a number."""
    return ~(jnp.asarray(one) <= other)


def settle(centre: Array, radius: Array, axis: int = -1) -> tuple[Array, Array]:
    """Returns centre and radius, 0 and +inf where a centre or its radius is not finite.

    Nothing is known there, and a finite centre lets a later norm bound what it writes.

    Args:
        centre: [..., d, ...].
        radius: the same without the coordinates.
        axis: of the coordinates.
    """
    radius = resting_on(radius, centre.sum(axis=axis))
    lost = jnp.expand_dims(jnp.isinf(radius), axis)
    return jnp.where(lost, 0.0, centre), radius
