"""The prefixes that an expectation runs over: all of them, or a sample."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.substitution import padded
from jax_models.errors import InputError
from jax_models.languages import Source

# Numbers of one next-symbol table held at a time.
CHUNK = 2**23


@dataclasses.dataclass(frozen=True)
class Population:
    """Prefixes of one length with weights that add to 1.

    Attributes:
        strings: Prefixes [m, n], int32.
        weights: [m]; equal in a sample.
        is_complete: Whether these are all prefixes, with their exact probabilities.
    """

    strings: np.ndarray
    weights: np.ndarray
    is_complete: bool

    def mean(self, values: np.ndarray) -> float:
        """Returns the weighted mean of values [m]."""
        return float(self.weights @ values)

    def standard_error(self, values: np.ndarray) -> float:
        """Returns the standard error of `mean`: 0 where no prefix is left out."""
        if self.is_complete:
            return 0.0
        return float(np.std(values, ddof=1) / np.sqrt(values.size))


def enumerate_prefixes(source: Source, length: int) -> Population:
    """Returns all prefixes of a length.

    Args:
        source: The source.
        length: n >= 1, small: there may be V^n of them.
    """
    strings = source.prefixes(length)
    weights = np.exp(log_probabilities(source, strings) - source.log_survival(length))
    return Population(strings, weights / weights.sum(), True)


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
    key = jax.random.fold_in(jax.random.key(seed), length)
    strings = np.asarray(source.sample(key, length, count))
    return Population(strings, np.full(count, 1 / count), False)


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
