"""Texts of the quantities and hypotheses of bounds, and checks of their arguments.

Bounds and claims on one quantity share its text, so that they can be compared. In bounds
on influence, j is the position that is read, i the position whose symbol changes, and
y^(k) and y'^(k) are the activations after layer k for the two inputs. In bounds on
approximation, the scores s of one row have the maximum m and the maximisers M; S_τ(s) is
the softmax of s/τ; ah(s), lh(s) and rh(s) are the average-, leftmost- and rightmost-hard
weights; a gap γ > 0 means that every score outside M is at most m - γ.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from bounds.numbers.bound import Bound, Sense
from bounds.numbers.interval import Interval, log_lower, log_upper

AVERAGE = "|ah(s) - S_tau(s)|_1"
LEFTMOST = "|lh(s) - S_tau(s)|_1"
RIGHTMOST = "|rh(s) - S_tau(s)|_1"
PERTURBED = "|ah(s) - S_tau(s')|_1"
TEMPERATURE = "the largest temperature (that keeps the error at most epsilon)"

TIELESS = "one score is the maximum, all others are at least gap below it"
GAP = "every score that is not the maximum is at least gap below it"

PAPER = "Yang, Strobl, Chiang and Angluin 2026"
DIFFER = "the inputs differ at position i only, their embeddings there by at most D"
CONSTANTS = "the layer constants hold for both inputs: norms at most F_k, gains bounds"
UNMASKED = "softmax attention over all n positions, no mask"
MASKED = "softmax attention over the visible positions of each row"

UNMASKED_HYPOTHESES = (DIFFER, CONSTANTS, UNMASKED)

_Kind = TypeVar("_Kind")


def nonnegative(name: str, value: float) -> float:
    """The value as a float; a ValueError outside [0, ∞]."""
    found = number(value)
    # Negated, so that NaN is refused.
    if not found >= 0:
        raise ValueError(f"{name} is {shown(value)}, expected a number >= 0")
    return found


def check_fields(record: Any, check: Callable[[str, Any], Any], *names: str) -> None:
    """Replaces the named fields of a frozen dataclass by check(name, value)."""
    for name in names:
        object.__setattr__(record, name, check(name, getattr(record, name)))


def positive(name: str, value: float) -> float:
    """The value as a float; a ValueError outside (0, ∞)."""
    found = number(value)
    if not (0 < found < math.inf):
        raise ValueError(f"{name} is {shown(value)}, expected a finite number > 0")
    return found


def whole(
    name: str, value: int, least: int | None = None, most: int | None = None
) -> int:
    """The value as an int; a ValueError unless whole and from `least` to `most`, if given."""
    try:
        # `int` would read text, and cut a fraction off: what it finds has to equal the
        # value.
        found = None if isinstance(value, str | bytes) else int(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or found != value or (least is not None and found < least):
        end = "" if least is None else f" >= {least}"
        raise ValueError(f"{name} is {shown(value)}, expected an integer{end}")
    if most is not None and found > most:
        raise ValueError(f"{name} is {shown(value)}, expected at most {most}")
    return found


def probability(name: str, value: Fraction | int | str) -> Fraction:
    """The value as an exact rational; a ValueError outside (0, 1), and for a float."""
    # A theorem on 7/20 says nothing of the float nearest to 0.35.
    if isinstance(value, float):
        raise ValueError(
            f"{name} is the float {value}, expected an exact number: a Fraction, or "
            "text such as '7/20'"
        )
    try:
        exact = Fraction(value)
    except (TypeError, ValueError, ArithmeticError):
        exact = Fraction(0)
    if not 0 < exact < 1:
        raise ValueError(f"{name} is {shown(value)}, expected a number between 0 and 1")
    return exact


def number(value: Any) -> float:
    """The value as a float, NaN where it is no number or beyond the floats."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def instance(name: str, value: Any, *kinds: type[_Kind]) -> _Kind:
    """The value, if it is an instance of one of `kinds`; else a ValueError."""
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{name} is {shown(value)}, expected {expected}")
    return value


def several(
    name: str, values: Sequence[Any], *kinds: type[_Kind], least: int = 0
) -> tuple[_Kind, ...]:
    """The values as a tuple; a ValueError for fewer than `least`, or one not of `kinds`."""
    try:
        found = tuple(values)
    except TypeError:
        raise ValueError(f"{name} is {shown(values)}, expected a sequence") from None
    if len(found) < least:
        raise ValueError(f"{len(found) or 'no'} {name}, expected at least {least}")
    for index, value in enumerate(found if kinds else ()):
        instance(f"{name}[{index}]", value, *kinds)
    return found


def choice(name: str, value: str, options: Sequence[str]) -> str:
    """The value, if it is one of the options; else a ValueError lists them."""
    if not (isinstance(value, str) and value in options):
        listed = ", ".join(options)
        raise ValueError(f"{name} is {shown(value)}, expected one of {listed}")
    return value


def shown(value: Any) -> str:
    """Text of a value for a message; its type where the text is over 40 characters."""
    text = " ".join((repr if isinstance(value, str) else str)(value).split())
    return text if len(text) <= 40 else f"of type {type(value).__name__}"


def upper_bound(
    value: Interval, quantity: str, hypotheses: tuple[str, ...], source: str
) -> Bound:
    """The bound quantity <= value, from an interval that encloses the value."""
    return Bound(log_upper(value), Sense.UPPER, quantity, hypotheses, source)


def lower_bound(
    value: Interval, quantity: str, hypotheses: tuple[str, ...], source: str
) -> Bound:
    """The bound quantity >= value > 0, from an interval that encloses the value."""
    return Bound(log_lower(value), Sense.LOWER, quantity, hypotheses, source)


def corrected_bound(
    value: Interval,
    quantity: str,
    form: str,
    hypotheses: tuple[str, ...] = UNMASKED_HYPOTHESES,
) -> Bound:
    """An upper bound by the corrected Lemma 5, from an interval that encloses its value."""
    # `quantity` is the text that `others` or `own` returns; `form` names the lemma's
    # form.
    source = f"Hahn 2020, Lemma 5, corrected: {form}"
    return upper_bound(value, quantity, hypotheses, source)


def others(layer: int) -> str:
    """Text for the change at a position j != i after `layer` layers, a bound's quantity."""
    return f"|y_j^({layer}) - y'_j^({layer})|, j != i"


def own(layer: int) -> str:
    """Text for the change at position i itself after `layer` layers, a bound's quantity."""
    return f"|y_i^({layer}) - y'_i^({layer})|"
