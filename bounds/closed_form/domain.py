"""What numbers a closed form accepts; everything else gets one clear error."""

import math
from fractions import Fraction
from typing import Any


def nonnegative(name: str, value: float) -> float:
    """The value as a float, if it is in [0, ∞].

    Args:
        name: How the caller calls it.
        value: A norm, distance or Lipschitz constant; infinite where none is known.

    Returns:
        The value.

    Raises:
        ValueError: It is negative or NaN.
    """
    found = number(value)
    if not found >= 0:
        raise ValueError(f"{name} is {_shown(value)}, expected a number >= 0")
    return found


def positive(name: str, value: float) -> float:
    """The value as a float, if it is in (0, ∞).

    Args:
        name: How the caller calls it.
        value: A temperature, a radius that may not vanish.

    Returns:
        The value.

    Raises:
        ValueError: It is not a finite number above zero.
    """
    found = number(value)
    if not (0 < found < math.inf):
        raise ValueError(f"{name} is {_shown(value)}, expected a finite number > 0")
    return found


def whole(name: str, value: int, least: int) -> int:
    """The value, if it is an integer of at least `least`.

    Returns:
        The value.

    Raises:
        ValueError: It is not an integer or too small.
    """
    try:
        found = None if isinstance(value, str | bytes) else int(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or found != value or found < least:
        raise ValueError(f"{name} is {_shown(value)}, expected an integer >= {least}")
    return found


def probability(name: str, value: Fraction | int | str) -> Fraction:
    """The value as an exact rational, if it is in (0, 1).

    Args:
        name: How the caller calls it.
        value: A probability or a fraction of a length; a float is not taken, because
            what is proved of 7/20 is not proved of the float nearest to 0.35.

    Returns:
        The value.

    Raises:
        ValueError: It is not strictly between 0 and 1, or not exact.
    """
    if isinstance(value, float):
        raise ValueError(
            f"{name} is the float {value}, expected an exact number: a Fraction, or "
            "text such as '7/20'"
        )
    try:
        exact = Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError):
        exact = Fraction(0)
    if not 0 < exact < 1:
        raise ValueError(
            f"{name} is {_shown(value)}, expected a number between 0 and 1"
        )
    return exact


def number(value: Any) -> float:
    """Returns the value as a float, NaN where it is no number or beyond the floats."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _shown(value: Any) -> str:
    """The value in a message: what has a long text is named by its type."""
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"of type {type(value).__name__}"
