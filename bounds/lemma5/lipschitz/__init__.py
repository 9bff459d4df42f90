"""The empirical Lipschitz constant: observed ratios of output to embedding change.

Estimates are no bounds; `bounds.lemma5.closed_form` and `bounds.lemma5.certificate` are.
"""

from bounds.lemma5.lipschitz.curve import LipschitzCurve, lipschitz_curve
from bounds.lemma5.lipschitz.searches import (
    Effort,
    Estimate,
    LipschitzEstimate,
    estimate_lipschitz,
)

__all__ = [
    "Effort",
    "Estimate",
    "LipschitzCurve",
    "LipschitzEstimate",
    "estimate_lipschitz",
    "lipschitz_curve",
]
