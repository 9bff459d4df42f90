"""A floor from the ε of every pair: the mean of the floors under the pairs.

By Lemma E the floor φ under a pair is convex in ε, so that φ at the mean ε of a group of
pairs is no larger than the mean of φ over the group: pairs of nearly the same ε are taken
together, and what is lost is of second order in their spread.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from bounds.entropy.population import Population
from bounds.entropy.theorem import OUTSIDE, FloorTheorem, Pairs
from bounds.rounding import gamma_upper, unit_roundoff

# Groups of each kind of pair; up to as many pairs each stands alone.
GROUPS = 256


@dataclasses.dataclass(frozen=True)
class AveragedFloor:
    """A floor and what it was averaged from.

    Attributes:
        floor: Nats, less what rounding of the weights can have added.
        values: The floor under each prefix's pair [m].
        closeness: The mean ε over the prefixes that have a pair; NaN where none has.
    """

    floor: float
    values: np.ndarray
    closeness: float


def averaged_floor(
    theorem: FloorTheorem,
    reading: str,
    population: Population,
    pairs: Pairs,
    epsilons: np.ndarray,
) -> AveragedFloor:
    """Returns the mean over a population of the floors under its pairs.

    Args:
        theorem: The theorem.
        reading: "last" or "query".
        population: Prefixes with weights.
        pairs: Their pairs.
        epsilons: ε of each pair, nats [m].
    """
    n, weights = population.strings.shape[1], population.weights
    values = np.empty(weights.size)
    for kind in np.unique(pairs.kinds):
        rows = np.flatnonzero(pairs.kinds == kind)
        if kind == OUTSIDE:
            values[rows] = theorem.pair_bound(n, reading, OUTSIDE, math.inf).value
            continue
        rows = rows[np.argsort(epsilons[rows], kind="stable")]
        for group in np.array_split(rows, min(GROUPS, rows.size)):
            mean = _mean_from_above(epsilons[group], weights[group])
            values[group] = theorem.pair_bound(n, reading, int(kind), mean).value
    paired = pairs.kinds != OUTSIDE
    closeness = (
        float(np.average(epsilons[paired], weights=weights[paired]))
        if paired.any()
        else math.nan
    )
    # A weight is e to a sum of n logarithms, so off by as many roundoffs of the sum.
    u = unit_roundoff(jnp.float64)
    off = (n + 4) * u * (2 + float(-np.log(weights.min())))
    mean = population.mean(values) * (1 - 2 * off - gamma_upper(2 * weights.size + 4))
    return AveragedFloor(mean, values, closeness)


def _mean_from_above(epsilons: np.ndarray, weights: np.ndarray) -> float:
    """The weighted mean of numbers >= 0, rounded up but not above the largest."""
    if np.isinf(epsilons).any():
        return math.inf
    mean = float(np.average(epsilons, weights=weights))
    return min(mean * (1 + gamma_upper(4 * epsilons.size + 4)), float(epsilons.max()))
