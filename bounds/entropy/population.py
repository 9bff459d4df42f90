"""The prefixes that an expectation runs over: all of them, or a sample."""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.substitution import padded
from jax_models.errors import InputError
from jax_models.languages import Source
from jax_models.languages.base import check_sample

# Numbers of one next-symbol table held at a time.
CHUNK = 2**23


@dataclasses.dataclass(frozen=True)
class Population:
    """Prefixes of one length with weights that add to 1.

    Attributes:
        strings: Prefixes [m, n], int32.
        weights: [m]; of a sample, equal within each stratum.
        is_complete: Whether these are all prefixes, with their exact probabilities.
        strata: What a sample was weighted by [m]; one number for all where by nothing.
    """

    strings: np.ndarray
    weights: np.ndarray
    is_complete: bool
    strata: np.ndarray

    def mean(self, values: np.ndarray) -> float:
        """Returns the weighted mean of values [m]."""
        return float(self.weights @ values)

    def standard_error(self, values: np.ndarray) -> float:
        """Returns the standard error of `mean`: 0 where no prefix is left out."""
        if self.is_complete:
            return 0.0
        variance = 0.0
        for stratum in np.unique(self.strata):
            rows = np.flatnonzero(self.strata == stratum)
            # One value says nothing of its stratum's spread; that of all stands for it.
            spread = np.var(values[rows] if rows.size > 1 else values, ddof=1)
            variance += self.weights[rows].sum() ** 2 * spread / rows.size
        return float(np.sqrt(variance))

    def stratified(
        self, strata: np.ndarray, shares: Mapping[int, float]
    ) -> "Population":
        """Returns a sample weighted by the exact probabilities of its strata.

        How often each is met in a sample is then no part of the error. A sample that
        misses one stays as it is, and so do all prefixes.

        Args:
            strata: Of each prefix [m].
            shares: The probability of each stratum.
        """
        some = {stratum for stratum, share in shares.items() if share > 0}
        if self.is_complete or set(np.unique(strata).tolist()) != some:
            return self
        weights = np.empty(strata.size)
        for stratum in some:
            rows = strata == stratum
            weights[rows] = shares[stratum] / rows.sum()
        return dataclasses.replace(self, weights=weights / weights.sum(), strata=strata)


def enumerate_prefixes(source: Source, length: int) -> Population:
    """Returns all prefixes of a length.

    Args:
        source: The source.
        length: n >= 1, small: there may be V^n of them.
    """
    strings = source.prefixes(length)
    weights = np.exp(log_probabilities(source, strings) - source.log_survival(length))
    return Population(
        strings, weights / weights.sum(), True, np.zeros(len(strings), int)
    )


def sample_prefixes(source: Source, length: int, count: int, seed: int) -> Population:
    """Returns independent prefixes of a length.

    Args:
        source: The source.
        length: n >= 1.
        count: How many, at least 2.
        seed: The same seed gives the same prefixes.

    Raises:
        InputError: There are fewer than 2, which have no standard error.
    """
    if count < 2:
        raise InputError(f"{count} sampled prefixes; a standard error needs at least 2")
    check_sample(length, count)
    key = jax.random.fold_in(jax.random.key(seed), length)
    strings = np.asarray(source.sample(key, length, count))
    return Population(strings, np.full(count, 1 / count), False, np.zeros(count, int))


def log_probabilities(source: Source, strings: np.ndarray) -> np.ndarray:
    """Returns ln P(a word begins with each string) [m], in chunks.

    Args:
        source: The source.
        strings: [m, n].
    """
    count = len(strings)
    size = min(count, max(1, CHUNK // (strings.shape[1] * source.num_classes)))
    parts = []
    for start in range(0, count, size):
        part = padded(strings[start : start + size], size)
        parts.append(np.asarray(_log_probability(jnp.asarray(part), source=source)))
    return np.concatenate(parts)[:count].astype(np.float64)


@functools.partial(jax.jit, static_argnames="source")
def _log_probability(strings: jax.Array, *, source: Source) -> jax.Array:
    return source.log_probability(strings)
