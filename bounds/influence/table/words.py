"""Watched rows and reductions of a scan from the words of a command line.

A scan is a table of changes of rows of an output by edits of an input at each position;
a reduction makes one number of several.
"""

from typing import Any

from bounds.influence.table.frobenius import Frobenius
from bounds.influence.targets.base import is_count
from jax_models.arguments import show
from jax_models.errors import InputError

WORDS = ("none", "max", "mean")
# Words that may follow frobenius, and the argument that each gives.
FROBENIUS: dict[str, tuple[str, Any]] = {
    "tensor": ("symmetrize", "tensor"),
    "map": ("symmetrize", "map"),
    "nocenter": ("center", False),
    "noapc": ("apc", False),
    "left_out": ("wild_type", "left_out"),
}
GRAMMAR = (
    f"{', '.join(WORDS)}, or frobenius[:tensor|:map][:nocenter][:noapc][:left_out]"
)


def parse_reduce(text: str | None) -> Any:
    """Reduction that a value of `--reduce` names, as `bounds.scan` takes it."""
    if text is None or text in WORDS:
        return text
    first, *words = text.split(":")
    given = dict(FROBENIUS[word] for word in words if word in FROBENIUS)
    # An unknown word, or two for one argument, leave fewer arguments than words.
    if first != "frobenius" or len(given) < len(words):
        raise InputError(f"{show(text)} is no reduction; expected {GRAMMAR}")
    return Frobenius(**given)


def parse_rows(text: str | None) -> Any:
    """Watched rows that a value of `--rows` names, as `bounds.scan` takes them."""
    if text in (None, "all", "own"):
        return text
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not is_count(part.removeprefix("-")):
            raise InputError(
                f"{show(text)} names no rows; expected a position, negative ones counting "
                "from the end, several separated by commas, all, or own"
            )
    rows = [int(part) for part in parts]
    return rows[0] if len(rows) == 1 else rows
