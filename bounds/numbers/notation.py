"""Texts of lengths, temperatures, fractions and values in flags, labels and tables.

A temperature is a number T, `inverse_log:A`, which is A / ln n at length n, or `power:A:P`,
A n^P (A p^P at position p); its record is the dictionary that a model file holds.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from jax_models.arguments import MAX_LENGTH, ascii_number
from jax_models.run.device_memory import BYTE_UNITS

MOST_DIGITS = 17  # enough for any float
# The arithmetic of thresholds of depth (routes H and A) has 60 digits.
CLOSEST = Fraction(1, 10**30)
WIDTH = 96  # characters of a line of explanation


def parse_temperature(text: str) -> dict[str, Any] | None:
    """Temperature record of text `T`, `inverse_log:A`, `power:A:P[:position]`; None for 1."""
    match text.strip().split(":"):
        case ["inverse_log", scale]:
            return {"kind": "inverse_log", "scale": _positive(scale, text)}
        case ["power", scale, exponent, *of] if of in ([], ["length"], ["position"]):
            return {
                "kind": "power",
                "scale": _positive(scale, text),
                "exponent": _number(exponent, text),
                "of": of[0] if of else "length",
            }
        case [value]:
            number = _positive(value, text)
            return None if number == 1 else {"kind": "constant", "value": number}
    raise ValueError(_grammar(text))


def parse_bytes(text: str) -> int:
    """Number of bytes, at least 1, from text such as `512MiB` or `2.5GiB`."""
    # The letters are only split off here: a unit of other letters, or order, has no
    # size.
    number = text.strip().rstrip("BKMGTi")
    unit = text.strip()[len(number) :]
    try:
        size = float(ascii_number(number)) * BYTE_UNITS[unit]
    except (KeyError, ValueError):
        size = math.nan
    if not 1 <= size < math.inf:
        raise ValueError(
            f"{text!r} is no amount of memory; expected bytes, or a number and one of "
            f"{', '.join(filter(None, BYTE_UNITS))}, as in 512MiB"
        )
    return int(size)


def parse_lengths(text: str) -> tuple[int, ...]:
    """Increasing lengths from text, `16,32,64` or log-spaced `start:stop:count`."""
    is_range = ":" in text
    try:
        numbers = [_whole(part, text) for part in text.split(":" if is_range else ",")]
        if is_range and len(numbers) != 3:
            raise ValueError(f"{text!r} is no range of three numbers")
        lengths = _log_spaced(*numbers) if is_range else numbers
        for shorter, longer in itertools.pairwise(lengths):
            if longer <= shorter:
                raise ValueError(
                    f"lengths must increase, but {longer} follows {shorter}"
                )
        return tuple(lengths)
    except ValueError as error:
        raise ValueError(
            f"{error}; expected a comma-separated list, or start:stop:count (log-spaced)"
        ) from None


def describe_lengths(lengths: Sequence[int]) -> str:
    """Text such as "3 lengths, n = 16 to 64", from input lengths."""
    if len(lengths) == 1:
        return f"one length, n = {lengths[0]}"
    return f"{len(lengths)} lengths, n = {lengths[0]} to {lengths[-1]}"


def parse_share(text: str) -> Fraction:
    """Fraction from text such as 0.35 or 7/20; at least `CLOSEST` from both 0 and 1."""
    try:
        share = Fraction(ascii_number(text))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 < share < 1:
        raise ValueError(f"{text} is not between 0 and 1")
    if min(share, 1 - share) < CLOSEST:
        raise ValueError(f"{text} is within 1e-30 of 0 or of 1")
    return share


def temperature_label(temperature: dict[str, Any] | None) -> str:
    """Text of a temperature record, in the form that `parse_temperature` reads."""
    match temperature:
        case None:
            return "1"
        case {"kind": "constant", "value": value}:
            return _short(value)
        case {"kind": "inverse_log", "scale": scale}:
            return f"inverse_log:{_short(scale)}"
        case {"kind": "power", "scale": scale, "exponent": exponent, **rest}:
            of = ":position" if rest.get("of") == "position" else ""
            return f"power:{_short(scale)}:{_short(exponent)}{of}"
    raise ValueError(f"not a temperature: {temperature!r}")


def enclosure_label(value: float, lower: float, upper: float) -> str:
    """Text of a value >= 0 and its error bound, as in `0.40612345 +- 3.1e-07`."""
    # Where 0 is possible no digit is known: the upper end alone, rounded up.
    if lower == 0:
        return "0" if upper == 0 else f"0 (below {_rounded_up(Decimal(upper))})"
    radius = Decimal(max(value - lower, upper - value))
    digits = MOST_DIGITS
    if radius:
        # The digits of the value down to the second one of the radius.
        digits = Decimal(value).adjusted() - radius.adjusted() + 2
    shown = f"{value:.{min(max(digits, 2), MOST_DIGITS)}g}"
    # The radius is taken around the digits that are shown, so that it includes both
    # ends.
    ends = (abs(Decimal(end) - Decimal(shown)) for end in (lower, upper))
    return f"{shown} +- {_rounded_up(max(ends))}"


def _rounded_up(number: Decimal) -> str:
    """Text of a number rounded up to two significant digits."""
    context = Context(prec=2, rounding=ROUND_CEILING)
    return f"{float(context.plus(number)):.2g}"


def legend_label(label: str) -> str:
    """A curve's label in a figure, as in "softmax, τ = 1 / ln n"."""
    # `label` is a weighting, and after an "@" its temperature.
    weighting, _, temperature = label.partition("@")
    name = weighting.replace("_", " ")
    match temperature.split(":"):
        case ["inverse_log", scale]:
            return f"{name}, τ = {scale} / ln n"
        case ["power", scale, exponent, *of]:
            return f"{name}, τ = {scale} {'p' if of else 'n'}^{exponent}"
        case [""]:
            return name
    return f"{name}, τ = {temperature}"


def _short(number: float) -> str:
    """All digits of a number, without a trailing `.0`."""
    return repr(float(number)).removesuffix(".0")


def _log_spaced(start: int, stop: int, count: int) -> list[int]:
    if stop < start:
        raise ValueError(f"the stop {stop} lies before the start {start}")
    if count == 1 and start != stop:
        raise ValueError("both ends are included, so a count of 1 needs start = stop")
    return np.unique(np.rint(np.geomspace(start, stop, count)).astype(int)).tolist()


def _whole(text: str, argument: str) -> int:
    try:
        number = int(ascii_number(text))
    except ValueError:
        raise ValueError(f"{text!r} in {argument!r} is not a whole number") from None
    if not 1 <= number <= MAX_LENGTH:
        raise ValueError(f"{number} is outside 1 … {MAX_LENGTH}")
    return number


def _positive(value: str, text: str) -> float:
    number = _number(value, text)
    if number <= 0:
        raise ValueError(f"temperatures are positive, got {value!r} in {text!r}")
    return number


def _number(value: str, text: str) -> float:
    try:
        number = float(ascii_number(value))
    except ValueError:
        raise ValueError(_grammar(text)) from None
    if not math.isfinite(number):
        raise ValueError(f"{value!r} in {text!r} is not finite")
    return number


def _grammar(text: str) -> str:
    return f"{text!r} is not a temperature: T, inverse_log:A or power:A:P[:position]"


def column_table(
    rows: Iterable[Mapping[str, Any]],
    columns: Iterable[Sequence[str]],
    spec: str,
) -> list[str]:
    """Lines of a text table of `rows`, without empty columns, floats in the format `spec`.

    A column is a header and a key, and a format of its own behind them if it has one.
    """
    rows = list(rows)
    shown = [c for c in columns if any(row.get(c[1]) is not None for row in rows)]
    lines = [[header for header, *_ in shown]]
    for row in rows:
        lines.append([_cell(row.get(key), *(own or [spec])) for _, key, *own in shown])
    return aligned(lines)


def _cell(value: Any, spec: str) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return format(value, spec)
    return str(value)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown table of a header and rows of cells, without a final newline."""
    lines = header, ["---"] * len(header), *rows
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ruled(table: Sequence[str]) -> list[str]:
    """Lines of `table` with rules of dashes before and after the first, and at the end."""
    rule = "-" * len(table[0])
    return [rule, table[0], rule, *table[1:], rule]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Joins each line of cells to one text, with columns aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
