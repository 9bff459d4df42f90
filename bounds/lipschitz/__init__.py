"""The empirical Lipschitz constant: ratios that were observed, marked as estimates.

Nothing here is a bound; `bounds.closed_form` and `bounds.certificate` are.
"""

from bounds.lipschitz.curve import LipschitzCurve, lipschitz_curve
from bounds.lipschitz.result import Estimate, LipschitzEstimate
from bounds.lipschitz.searches import Effort, estimate_lipschitz

__all__ = [
    "Effort",
    "Estimate",
    "LipschitzCurve",
    "LipschitzEstimate",
    "estimate_lipschitz",
    "lipschitz_curve",
]
