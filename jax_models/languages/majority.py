"""MAJORITY: the bit strings with more ones than zeros."""

import dataclasses

from jax_models.languages.base import BitStrings, Members, Rows


@dataclasses.dataclass(frozen=True)
class Majority(BitStrings):
    """Bit strings with more ones than zeros; samples are uniform bit strings.

    Example:
        >>> Majority().contains([1, 0, 1]), Majority().contains([1, 0])
        (np.True_, np.False_)
    """

    name = "majority"

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it has more ones than zeros."""
        return 2 * strings.sum(axis=1) > strings.shape[1]
