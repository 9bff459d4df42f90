"""a^m b^m: as many a as b, the a first (Hahn 2020, section 4)."""

import dataclasses

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from jax_models.languages.base import Language, Members, Rows, Strings
from jax_models.languages.ones import turn_one


@dataclasses.dataclass(frozen=True)
class AnBn(Language):
    """The words a^m b^m, m >= 0; half of the samples have one symbol changed.

    Example:
        >>> AnBn().contains([0, 0, 1, 1]), AnBn().contains([0, 1, 0, 1])
        (np.True_, np.False_)
    """

    name = "anbn"
    symbols = ("a", "b")
    distribution = (
        "a^floor(n/2) b^ceil(n/2) in half of the cases, else this with one symbol "
        "changed at a uniform position"
    )

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws a^floor(n/2) b^ceil(n/2), with one symbol changed in half of the cases."""
        return turn_one(key, _halves(length), count)

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it is a^m b^m, which is of even length."""
        length = strings.shape[1]
        if length % 2:
            return np.zeros(len(strings), bool)
        return (strings == _halves(length)).all(axis=1)


def _halves(length: int) -> Int[np.ndarray, "tokens"]:
    """The word a^floor(n/2) b^ceil(n/2)."""
    return (np.arange(length) >= length // 2).astype(np.int32)
