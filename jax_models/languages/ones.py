"""1*: the bit strings without a zero (Hahn 2020, section 4)."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from jax_models.languages.base import Language, Members, Rows, Strings


@dataclasses.dataclass(frozen=True)
class Ones(Language):
    """Bit strings without a zero; half of the samples have one zero.

    Example:
        >>> Ones().contains([1, 1, 1]), Ones().contains([1, 0, 1])
        (np.True_, np.False_)
    """

    name = "ones"
    symbols = ("0", "1")
    distribution = "1^n in half of the cases, else 1^n with one 0 at a uniform position"

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws 1^n, with one zero in half of the cases."""
        return turn_one(key, np.ones(length, np.int32), count)

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it has no zero."""
        return (strings == 1).all(axis=1)


def turn_one(key: PRNGKeyArray, word: Int[np.ndarray, "tokens"], count: int) -> Strings:
    """Draws copies of a word of bits; half of them have one bit flipped, int32."""
    length = len(word)
    turned, place = jax.random.split(key)
    # The empty word has no place, and `randint` no empty range.
    at = jax.random.randint(place, (count, 1), 0, max(length, 1))
    # A place behind the word flips nothing.
    at = jax.numpy.where(jax.random.bernoulli(turned, shape=(count, 1)), at, length)
    flip = jax.numpy.arange(length) == at
    return jax.numpy.asarray(word, jax.numpy.int32) ^ flip.astype(jax.numpy.int32)
