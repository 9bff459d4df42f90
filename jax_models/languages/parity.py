"""PARITY: the bit strings with an even number of ones (Hahn 2020, section 4), and a source.

From an even count of ones a word of the source ends with probability p and goes on with 0 or
1, each (1 - p)/2; from an odd count it goes on with 0 or 1, each 1/2.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.languages.base import (
    BitStrings,
    Following,
    Members,
    Prefixes,
    Rows,
    Source,
    Strings,
    binary_entropy,
    check_probability,
)


@dataclasses.dataclass(frozen=True)
class ParitySource(Source):
    """Prefixes of PARITY, and the distribution of the symbol that follows.

    Attributes:
        end_probability: p, of ending where the count of ones is even.

    Raises:
        InputError: if p is not inside (0, 1).
    """

    end_probability: float = 0.5

    name = "parity"
    symbols = ("0", "1")

    def __post_init__(self) -> None:
        """Checks the end probability p."""
        check_probability("end probability p", self.end_probability)

    @property
    def first_symbol(self) -> tuple[float, ...]:
        """Distribution of the first symbol: (1 - p)/2 for either bit, p for END."""
        p = self.end_probability
        return ((1 - p) / 2, (1 - p) / 2, p)

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws the parities of all prefixes; the symbols are their differences mod 2."""
        p = self.end_probability
        # The kernel between parities has rank one: given that a word has at least n symbols,
        # the parities S_t of its first t symbols, t = 1 … n - 1, are independent, even with
        # probability (1 - p)/(2 - p), and S_n is a fair coin.
        odd = jnp.full((length,), 1 / (2 - p)).at[-1].set(0.5)
        states = (jax.random.uniform(key, (count, length)) < odd).astype(jnp.int32)
        return states ^ jnp.pad(states[:, :-1], ((0, 0), (1, 0)))

    def next_symbol(self, tokens: Prefixes) -> Following:
        """Returns the distribution of the symbol after each prefix."""
        even, odd = jnp.asarray(self.first_symbol), jnp.asarray([0.5, 0.5, 0.0])
        parity = jnp.cumsum(tokens, axis=-1)[..., None] % 2
        # From the first symbol that is no bit on, the string is no prefix.
        bits = jnp.cumsum((tokens < 0) | (tokens > 1), axis=-1)[..., None] == 0
        return jnp.where(bits, jnp.where(parity == 0, even, odd), 0.0)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols): ln[(1 - p)(1 - p/2)^{n-1}], 0 for n = 0."""
        p = self.end_probability
        return math.log1p(-p) + (length - 1) * math.log1p(-p / 2) if length else 0.0

    def joint(self, length: int) -> Float[np.ndarray, "2 3"]:
        """Returns the joint law of the symbol x_n and the next symbol."""
        # x_n is a fair coin. For n >= 2 the count is even with probability (1 - p)/(2 - p)
        # after a 0, 1/(2 - p) after a 1; for n = 1 it is even after a 0, odd after a 1.
        p = self.end_probability
        even = 1.0 if length == 1 else (1 - p) / (2 - p)
        after_even, after_odd = np.array(self.first_symbol), np.array([0.5, 0.5, 0.0])
        share = np.array([[even], [1 - even]])
        return (share * after_even + (1 - share) * after_odd) / 2

    def optimal_entropy(self, length: int) -> float:
        """Returns the entropy of the next symbol given the prefix, equal for all n >= 1."""
        del length
        p = self.end_probability
        # Both counts have probability 1/2: h(p) + (1 - p) ln 2 from the even, ln 2 from the
        # odd.
        return (binary_entropy(p) + (1 - p) * math.log(2) + math.log(2)) / 2

    def prefixes(self, length: int) -> Int[np.ndarray, "prefixes tokens"]:
        """Returns all bit strings [2^n, n], in the order of the numbers they write."""
        places = np.arange(length - 1, -1, -1)
        return (np.arange(2**length)[:, None] >> places & 1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Parity(BitStrings):
    """Bit strings with an even number of ones; samples are uniform bit strings.

    The samples are *not* conditioned on membership: each is a member with
    probability 1/2, and flipping any one bit changes that.

    Example:
        >>> Parity().contains([1, 0, 1]), Parity().contains([1, 0, 0])
        (np.True_, np.False_)
    """

    name = "parity"

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it has an even number of ones."""
        return strings.sum(axis=1) % 2 == 0
