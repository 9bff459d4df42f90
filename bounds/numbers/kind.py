"""The kind of a result, in one of four words, and the hypotheses that it rests on.

The ends of a value are a lower and an upper bound on it, its radius one on its error.
"""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

# "exact": with a relative rounding radius of at most `RTOL_EXACT`. "certified": a bound
# that is proved, its rounding too. "enclosure": the value lies between its ends.
# "estimated": nothing is known of the error. Ends of the first and third may rest on a
# model of rounding (`ROUNDING`).
Kind = Literal["exact", "certified", "enclosure", "estimated"]
RTOL_EXACT = 0.01

# Hypothesis of the radii of computed influences.
ROUNDING = (
    "what rounds only inside the program rounds like what moved by sixteen roundings; see "
    "docs/precision.md"
)
# Hypothesis of a maximum where the largest results alone have radii.
TOP = "no result without a radius is off by its distance from the maximum"
# Hypothesis of the radii of a caller's function.
STATED = "the radius that was stated of every evaluation"


class OfKind:
    """Base class of results with a `kind`: exact, certified, enclosure or estimated."""

    kind: Kind
    # Largest relative radius of an exact value.
    rtol_exact: ClassVar[float] = RTOL_EXACT

    @property
    def exact(self) -> bool:
        """True if `kind` is "exact": its radius is at most `rtol_exact` times the value."""
        return self.kind == "exact"

    @property
    def estimated(self) -> bool:
        """True if `kind` is "estimated": the error of the value is unknown."""
        return self.kind == "estimated"


def kind_of(value: float, lower: float, upper: float) -> Kind:
    """Kind of a value >= 0 that rounding leaves between `lower` and `upper`."""
    # "exact" if both ends are within `RTOL_EXACT` times the value from it: a value of 0
    # if both ends are 0.
    most = RTOL_EXACT * value
    near = value - lower <= most and upper - value <= most  # of NaN nothing is
    return "exact" if near else "enclosure"


def kind_of_largest(
    values: Float[np.ndarray, "*values"],
    lower: Float[np.ndarray, "*values"],
    upper: Float[np.ndarray, "*values"],
) -> Kind:
    """Kind of the largest |value| of an array with its ends; "exact" if all are NaN."""
    if np.isnan(values).all():
        return "exact"  # of nothing

    def largest(
        above: Float[np.ndarray, "..."], below: Float[np.ndarray, "..."]
    ) -> float:
        return max(float(np.nanmax(above)), -float(np.nanmin(below)), 0.0)

    ends = largest(lower, upper), largest(upper, lower)
    return kind_of(largest(values, values), *ends)


def kind_of_ends(lower: float, upper: float, enclosed: bool) -> Kind:
    """Kind of a value with ends `lower` and `upper`; "estimated" if not `enclosed`."""
    if not enclosed:
        return "estimated"
    # Halved first: a sum of the ends may overflow.
    middle, radius = abs(lower / 2 + upper / 2), upper / 2 - lower / 2
    return kind_of(middle, middle - radius, middle + radius)
