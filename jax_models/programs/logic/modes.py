"""Modes of compiling formulas: means that a model may use, operators it expresses.

Soft attention picks out one position only if its scores are large against log n. The
modes differ in the source of large scores: a temperature that falls with the length or with
the position, or positions and lengths in the position encoding; and in whether every
layer has a future mask and may not know n. A side is "prefix", the positions up to one, or
"suffix", those from it on.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from jax_models.arguments import choose_name
from jax_models.errors import InputError
from jax_models.programs.grammar import walk
from jax_models.programs.logic.syntax import (
    Comparison,
    Count,
    Formula,
    Joined,
    Prefixed,
    Symbol,
)

Side = Literal["prefix", "suffix"]  # what a row sees, or counts: j <= i or j >= i
MOST = 2**53  # up to here float64 holds every integer

SHARPNESS = math.log(64)
"""Score difference, in nats, of the position that a head looks for from the next.

log 8 would do over the reals (a value is then within 2/9 of a Boolean); the rest is
room for rounding, which grows with the sharpness far more slowly than what it leaves.
"""


@dataclasses.dataclass(frozen=True)
class Mode:
    """Means that a compiled formula's model may use; a row of the table `MODES`."""

    name: str
    future_only: bool  # every layer is future-masked, and nothing depends on n
    temperature: Literal["length", "position"] | None  # what it falls with
    select_exponent: int  # the temperature of rightmost (leftmost) heads: base ** -this
    lookup_exponent: int  # the temperature of the lookups of counts
    operators: str  # what it expresses
    positions: str  # the position encoding, predicates apart; p counts from 1


MODES = {
    mode.name: mode
    for mode in (
        Mode("T", False, "length", 1, 1, "P N S U #< #>", "p/n, (-1)^p; p, p^2"),
        Mode(
            "TB", False, "length", 1, 3, "P N S U #< #>", "p/n, (-1)^p; p/n^2, p^2/n^2"
        ),
        Mode("U", False, None, 0, 0, "P N S U #< #>", "p/n, (-1)^p, n; p, np, np^2"),
        Mode("FT", True, "position", 2, 1, "P S #<", "(-1)^p; p, p^2"),
        Mode("FU", True, None, 0, 0, "P S #<", "(-1)^p, p; p(-1)^p, p^2, p^3"),
    )
}
"""The modes by name; `positions` lists after the semicolon what only counts need."""


def get_mode(name: str) -> Mode:
    """Returns the mode called `name`; `InputError` for an unknown name."""
    return MODES[choose_name("mode", name, [*MODES])]


def mask_of(side: Side) -> Literal["future", "past"]:
    """Attention mask under which a row sees the prefix or suffix at its position."""
    return "future" if side == "prefix" else "past"


def require_expressible(
    formula: Formula,
    alphabet: tuple[str, ...],
    mode: Mode,
    # place where a part of the formula was read, as in "column 5"
    place: Callable[[Formula | Count], str] | None = None,
) -> None:
    """Raises `InputError` unless a mode's models can express a formula on an alphabet."""
    # Each reason with the first part it is for.
    reasons: dict[str, Formula | Count] = {}
    for part in walk(formula):
        match part:
            case Symbol(name) if name not in alphabet:
                known = " ".join(alphabet)
                reason = f"the symbol {name!r} is not in the alphabet {known}"
            case Prefixed("N") if mode.future_only:
                reason = "N (next) looks at a later position"
            case Joined("U") if mode.future_only:
                reason = "U (until) looks at later positions"
            case Count(side="suffix") if mode.future_only:
                reason = "#> counts later positions"
            case Comparison(terms, constant) if (
                max(abs(constant), *(abs(factor) for factor, _ in terms)) > MOST
            ):
                reason = "an integer beyond 2^53, which no weight holds exactly"
            case _:
                continue
        reasons.setdefault(reason, part)
    if not reasons:
        return
    listed = [
        reason if place is None else f"{place(part)}: {reason}"
        for reason, part in reasons.items()
    ]
    advice = (
        f"; mode {mode.name} is future-masked and expresses {mode.operators}: use T, TB "
        "or U for operators that look ahead"
        if any("later" in reason for reason in reasons)
        else ""
    )
    raise InputError(
        f"mode {mode.name} cannot express the formula: {'; '.join(listed)}{advice}"
    )
