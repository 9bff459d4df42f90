"""One line of the audit: a printed inequality, a model, and the two sides of it."""

import dataclasses
from typing import Any, TypeAlias

from mpmath import MPContext

# 60 digits: the smallest change that matters below is 1e-36 of what it is a change of.
CONTEXT: Any = MPContext()
CONTEXT.dps = 60

# An mpmath number, whose type mpmath does not declare to checkers.
Real: TypeAlias = Any


@dataclasses.dataclass(frozen=True)
class Finding:
    """Both sides of one printed inequality, left <= right, in one model.

    Attributes:
        step: Where it stands in the printed proof; the numbers are those of the list in
            docs/lemma5-audit.md.
        printed: The inequality.
        model: The attention, activations and numbers it was evaluated in.
        left: Its left side, exact up to 40 digits at least.
        right: Its right side; zero where the claim is that the left side vanishes.
    """

    step: str
    printed: str
    model: str
    left: Real
    right: Real

    @property
    def holds(self) -> bool:
        """Whether the inequality is true in this model."""
        return bool(self.left <= self.right)

    @property
    def ratio(self) -> float:
        """Left side over right side; above 1 the inequality is violated."""
        return float(self.left / self.right) if self.right else float("inf")


def real(value: float | int | str) -> Real:
    """The number with 60 digits; a float is exactly what it is, a string decimal."""
    return CONTEXT.mpf(value)
