"""What an answer is, in one of four words, and what it rests on."""

from typing import Any, Literal

import numpy as np

from jax_models import InputError
from jax_models.arguments import expect_number

# "exact": to a rounding radius of at most `RTOL_EXACT` of it. "certified": a proved bound,
# its rounding too. "enclosure": it lies between its ends. "estimated": nothing is known of
# its error. Ends of the first and third may rest on a model of rounding (`ROUNDING`).
Kind = Literal["exact", "certified", "enclosure", "estimated"]
RTOL_EXACT = 0.01

# What the radii of computed influences suppose.
ROUNDING = (
    "what rounds only inside the program rounds like what moved by sixteen roundings; see "
    "docs/precision.md"
)
# What a maximum supposes where the largest results alone have radii.
TOP = "no result without a radius is off by its distance from the maximum"
# What those of a function that is not ours suppose.
STATED = "the radius that was stated of every evaluation"


class OfKind:
    """A result that says what it is: what is asked of its kind."""

    kind: Kind

    @property
    def exact(self) -> bool:
        """Whether the largest value is known but for a small rounding radius."""
        return self.kind == "exact"

    @property
    def estimated(self) -> bool:
        """Whether nothing encloses it."""
        return self.kind == "estimated"


def kind_of(
    value: float, lower: float, upper: float, rtol_exact: float = RTOL_EXACT
) -> Kind:
    """Returns what a value of at least 0 is whose ends are radii of rounding.

    "exact" where both ends are within rtol_exact times the value of it, else "enclosure".
    A value of 0 is exact where its upper end is 0: nothing that is read has moved.

    Args:
        value: the computed value.
        lower: its lower end.
        upper: its upper end.
        rtol_exact: the largest radius of an exact one, relative to it, below 1.
    """
    most = rtol_exact * value
    near = value - lower <= most and upper - value <= most  # of NaN nothing is
    return "exact" if near else "enclosure"


def kind_of_largest(
    values: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    rtol_exact: float = RTOL_EXACT,
) -> Kind:
    """Returns what the largest absolute value of many is, as `kind_of` does.

    Args:
        values: of any sign, NaN where there is none.
        lower: their lower ends.
        upper: their upper ends.
        rtol_exact: the largest radius of an exact one, relative to it, below 1.
    """
    if np.isnan(values).all():
        return "exact"  # of nothing

    def largest(above: np.ndarray, below: np.ndarray) -> float:
        return max(float(np.nanmax(above)), -float(np.nanmin(below)), 0.0)

    ends = largest(lower, upper), largest(upper, lower)
    return kind_of(largest(values, values), *ends, rtol_exact)


def kind_of_ends(
    lower: float, upper: float, enclosed: bool, rtol_exact: float = RTOL_EXACT
) -> Kind:
    """Returns what one value of many is, of any sign, of which the ends were kept.

    Args:
        lower: its lower end.
        upper: its upper end.
        enclosed: whether the ends enclose it.
        rtol_exact: the largest radius of an exact one, relative to it, below 1.
    """
    if not enclosed:
        return "estimated"
    middle, radius = abs(lower / 2 + upper / 2), upper / 2 - lower / 2
    return kind_of(middle, middle - radius, middle + radius, rtol_exact)


def check_rtol_exact(rtol_exact: Any) -> float:
    """Returns the largest relative radius of an exact answer, checked.

    Args:
        rtol_exact: what was asked for.

    Raises:
        InputError: it is no number, negative, or 1 and more: what reaches down to 0 is
            not exact.
    """
    found = expect_number("rtol_exact", rtol_exact, 0)
    if found >= 1:
        raise InputError(f"rtol_exact = {found:g}; expected less than 1, as 0.01 is")
    return found
