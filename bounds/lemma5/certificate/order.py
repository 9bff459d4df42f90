"""Comparisons of bounds in which NaN bounds nothing: it counts as +inf.

A comparison with NaN is false, and a `where` then takes one of its branches as if
something were known; an overflowed denominator makes a gain (Lipschitz constant) of 0. So
the package compares through these functions alone, and each states its result for NaN
(`tests/bounds/lemma5/certificate/test_order.py` reads the source). A change of a row is
known by a centre, a computed vector, and a radius, an upper bound on its distance from it.
"""

import functools
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Numbers: TypeAlias = Float[Array, "..."]


def bounded(upper: Numbers) -> Numbers:
    """Upper bounds `upper`, with +inf in place of NaN."""
    return jnp.where(jnp.isnan(upper), jnp.inf, upper)


def resting_on(upper: Numbers, *computed: Numbers) -> Numbers:
    """Bounds `upper`, +inf where one is NaN or a number in `computed` is not finite."""
    # For numbers whose overflow would not show in the bound, such as denominators.
    sound = functools.reduce(jnp.logical_and, map(jnp.isfinite, computed))
    return jnp.where(sound, bounded(upper), jnp.inf)


def times(gain: Numbers | float, radius: Numbers) -> Numbers:
    """Upper bound gain * radius; 0 where the radius is 0, +inf where the product is NaN."""
    # A radius of 0 is exact: its product is 0 even for an infinite gain. A gain of 0
    # times an infinite radius is +inf.
    return jnp.where(radius == 0, 0.0, bounded(gain * radius))


def least(*bounds: Numbers | float) -> Numbers:
    """Smallest of several upper bounds on one number, without those that are NaN."""
    # fmin passes over NaN.
    return bounded(functools.reduce(jnp.fmin, map(jnp.asarray, bounds)))


def greatest(*bounds: Numbers | float) -> Numbers:
    """The largest of upper bounds on several numbers, +inf if any is NaN."""
    # maximum hands NaN on.
    return bounded(functools.reduce(jnp.maximum, map(jnp.asarray, bounds)))


def surely_above(one: Numbers | float, other: Numbers | float) -> Bool[Array, "..."]:
    """Whether one > other; false where either is NaN."""
    return jnp.asarray(one) > other


def perhaps_above(one: Numbers | float, other: Numbers | float) -> Bool[Array, "..."]:
    """Whether `one <= other` fails: one > other, or either is NaN."""
    return ~(jnp.asarray(one) <= other)


def settle(centre: Numbers, radius: Numbers, axis: int = -1) -> tuple[Numbers, Numbers]:
    """Centre and radius of a row's change; 0 and +inf where one of them is not finite."""
    # Nothing is known there, and a finite centre lets a later norm bound its own
    # output. The sum over the coordinates (`axis`) is not finite where one of them is
    # not.
    radius = resting_on(radius, centre.sum(axis=axis))
    lost = jnp.expand_dims(jnp.isinf(radius), axis)
    return jnp.where(lost, 0.0, centre), radius
