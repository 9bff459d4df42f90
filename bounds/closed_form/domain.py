"""What numbers a closed form accepts; everything else gets one clear error."""

import math
from fractions import Fraction


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
    value = float(value)
    if math.isnan(value) or value < 0:
        raise ValueError(f"{name} is {value}, expected a number >= 0")
    return value


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
    value = float(value)
    if not (0 < value < math.inf):
        raise ValueError(f"{name} is {value}, expected a finite number > 0")
    return value


def whole(name: str, value: int, least: int) -> int:
    """The value, if it is an integer of at least `least`.

    Args:
        name: How the caller calls it.
        value: A length, depth or count.
        least: The smallest one that makes sense.

    Returns:
        The value.

    Raises:
        ValueError: It is not an integer or too small.
    """
    if int(value) != value or value < least:
        raise ValueError(f"{name} is {value}, expected an integer >= {least}")
    return int(value)


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
    exact = Fraction(value)
    if not 0 < exact < 1:
        raise ValueError(f"{name} is {exact}, expected a number between 0 and 1")
    return exact
