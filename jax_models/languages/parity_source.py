"""PARITY as a source: words with an even number of ones, symbol by symbol.

From an even count of ones the word ends with probability p and goes on with 0 or 1, each
(1 - p)/2; from an odd count it goes on with 0 or 1, each 1/2. A prefix of length n is
one of a word that is at least as long.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.errors import InputError

CLASSES = 3  # 0, 1, END


@dataclasses.dataclass(frozen=True)
class ParitySource:
    """Prefixes of the source, and the distribution of the symbol that follows.

    Attributes:
        end_probability: p, of ending where the count of ones is even.

    Raises:
        InputError: if p is not inside (0, 1).
    """

    end_probability: float = 0.5

    def __post_init__(self) -> None:
        """Checks p."""
        if not 0 < self.end_probability < 1:
            raise InputError(
                f"end probability p = {self.end_probability}; expected one inside (0, 1)"
            )

    def sample(self, key: Array, length: int, count: int) -> Array:
        """Draws prefixes of n symbols of words that are at least that long.

        Given that the word is long enough, the parities S_1 .. S_{n-1} are independent,
        even with probability (1 - p)/(2 - p), and S_n is a fair coin; the symbols are
        their differences.

        Args:
            key: a JAX random key.
            length: n >= 1.
            count: number of prefixes.

        Returns:
            Tokens 0 and 1 [count, n], int32.
        """
        p = self.end_probability
        odd = jnp.full((length,), 1 / (2 - p)).at[-1].set(0.5)
        states = (jax.random.uniform(key, (count, length)) < odd).astype(jnp.int32)
        return states ^ jnp.pad(states[:, :-1], ((0, 0), (1, 0)))

    def next_symbol(self, tokens: Array) -> Array:
        """Returns the distribution of the symbol after each prefix.

        Args:
            tokens: prefixes [..., n].

        Returns:
            Probabilities of 0, 1 and END [..., n, 3] after 1, 2, ..., n symbols.
        """
        p = self.end_probability
        even = jnp.asarray([(1 - p) / 2, (1 - p) / 2, p])
        odd = jnp.asarray([0.5, 0.5, 0.0])
        parity = jnp.cumsum(tokens, axis=-1)[..., None] % 2
        return jnp.where(parity == 0, even, odd)

    @property
    def unigram_cross_entropy(self) -> float:
        """Cross-entropy of the best constant prediction, nats per symbol, any n >= 1.

        The count is even or odd with probability 1/2, so END has probability p/2:
        h(p/2) + (1 - p/2) ln 2, with h the binary entropy.
        """
        end = self.end_probability / 2
        return _binary_entropy(end) + (1 - end) * math.log(2)

    @property
    def optimal_cross_entropy(self) -> float:
        """Entropy of the next symbol given the prefix, nats per symbol, any n >= 1.

        (h(p) + (1 - p) ln 2)/2 from an even count, and (ln 2)/2 from an odd one.
        """
        p = self.end_probability
        return (_binary_entropy(p) + (1 - p) * math.log(2) + math.log(2)) / 2


def _binary_entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log1p(-p)
