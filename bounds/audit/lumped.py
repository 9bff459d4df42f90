"""One-dimensional attention over groups of equal keys, with 60 digits.

A group of 10^12 equal keys costs as much as one key, so a violation that needs such
lengths is computed exactly, not extrapolated.
"""

import dataclasses
from collections.abc import Sequence

from bounds.audit.finding import CONTEXT, Real


@dataclasses.dataclass(frozen=True)
class Group:
    """Equal keys.

    Attributes:
        value: Their activation.
        count: How many there are.
    """

    value: Real
    count: int


def average(slope: Real, groups: Sequence[Group]) -> Real:
    """Attended value Σ α_w y_w with α = softmax(slope · y_w).

    Args:
        slope: What the query contributes to the logit, as under a dot product.
        groups: The keys.

    Returns:
        The average.
    """
    # Only differences of logits matter; a common one is taken out for good measure.
    reference = groups[0].value
    weights = [g.count * CONTEXT.exp(slope * (g.value - reference)) for g in groups]
    total = CONTEXT.fsum(weights)
    return (
        CONTEXT.fsum(w * g.value for w, g in zip(weights, groups, strict=True)) / total
    )
