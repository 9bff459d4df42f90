"""What the words of `scan` mean: its rows, and what is made of the changes."""

from typing import Any

import jax_models as jm
from bounds.cli.shared.target import MAX_DIGITS
from bounds.influence.scan import Frobenius
from bounds.influence.scan.reductions import Reduce
from jax_models.arguments import show

WORDS = ("none", "max", "mean")
# What stands behind frobenius, and what it says of the map.
FROBENIUS: dict[str, dict[str, Any]] = {
    "tensor": {"symmetrize": "tensor"},
    "map": {"symmetrize": "map"},
    "nocenter": {"center": False},
    "noapc": {"apc": False},
}
GRAMMAR = f"{', '.join(WORDS)}, or frobenius[:tensor|:map][:nocenter][:noapc]"


def parse_reduce(text: str | None) -> Reduce:
    """Returns what a value of `--reduce` means."""
    if text is None:
        return None
    for word in WORDS:
        if word == text:
            return word
    first, *more = text.split(":")
    given: dict[str, Any] = {}
    known = first == "frobenius"
    for word in more:
        entry = FROBENIUS.get(word, {})
        known = known and bool(entry) and not given.keys() & entry.keys()
        given |= entry
    if not known:
        raise jm.InputError(f"{show(text)} is no reduction; expected {GRAMMAR}")
    return Frobenius(**given)


def parse_rows(text: str | None) -> Any:
    """Returns what a value of `--rows` means, as `bounds.scan` takes it."""
    if text is None or text == "all":
        return text
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        digits = part.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > MAX_DIGITS:
            raise jm.InputError(
                f"{show(text)} names no rows; expected a position, negative ones counting "
                "from the end, several separated by commas, or all"
            )
    rows = [int(part) for part in parts]
    return rows[0] if len(rows) == 1 else rows
