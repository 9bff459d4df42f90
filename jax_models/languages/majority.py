"""MAJORITY: the bit strings with more ones than zeros."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Int

from jax_models.languages.base import BitStrings


@dataclasses.dataclass(frozen=True)
class Majority(BitStrings):
    """Bit strings with more ones than zeros; samples are uniform bit strings.

    Example:
        >>> Majority().contains([1, 0, 1]), Majority().contains([1, 0])
        (np.True_, np.False_)
    """

    name = "majority"

    def holds(
        self, strings: Int[np.ndarray, "inputs tokens"]
    ) -> Bool[np.ndarray, "inputs"]:
        """Decides for each row whether it has more ones than zeros."""
        return 2 * strings.sum(axis=1) > strings.shape[1]
