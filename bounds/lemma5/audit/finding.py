"""One line of the audit: a printed inequality, a model, and both sides.

The models are one-dimensional attention over groups of equal keys, with 60 digits. A
group of 10^12 equal keys costs as much as one key, so a violation that needs such lengths
is computed exactly, not extrapolated.
"""

import dataclasses
from collections.abc import Sequence
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
        step: Its place in the printed proof; the numbers are those of the list in
            docs/lemma5-audit.md.
        printed: The inequality.
        model: The attention, activations and numbers of the evaluation.
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


def real(value: float | int | str | Real) -> Real:
    """The number with 60 digits; a float is exactly what it is, a string decimal."""
    return CONTEXT.mpf(value)


@dataclasses.dataclass(frozen=True)
class Group:
    """Equal keys.

    Attributes:
        value: Their activation.
        count: Their number.
    """

    value: Real
    count: int


def average(slope: Real, groups: Sequence[Group]) -> Real:
    """Attended value Σ α_w y_w with α = softmax(slope · y_w)."""
    # Only differences of logits matter; a common one is taken out for good measure.
    reference = groups[0].value
    weights = [g.count * CONTEXT.exp(slope * (g.value - reference)) for g in groups]
    total = CONTEXT.fsum(weights)
    return (
        CONTEXT.fsum(w * g.value for w, g in zip(weights, groups, strict=True)) / total
    )
