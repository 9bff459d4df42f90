"""Whether a mode can express a formula over an alphabet: all reasons against it."""

from collections.abc import Callable

from jax_models.errors import InputError
from jax_models.logic.modes import Mode
from jax_models.logic.syntax import (
    Comparison,
    Count,
    Formula,
    Next,
    Symbol,
    Until,
    subformulas,
)

MOST = 2**53
"""Up to here float64 holds every integer."""


def refusals(
    formula: Formula, alphabet: tuple[str, ...], mode: Mode
) -> dict[str, Formula | Count]:
    """Returns every reason why a mode cannot express a formula, none if it can.

    Args:
        formula: the formula.
        alphabet: its symbols.
        mode: the mode.

    Returns:
        For each reason, in words, the first part of the formula that it speaks of, in
        the order in which the parts are met.
    """
    reasons: dict[str, Formula | Count] = {}
    for part in subformulas(formula):
        match part:
            case Symbol(name) if name not in alphabet:
                known = " ".join(alphabet)
                reason = f"the symbol {name!r} is not in the alphabet {known}"
            case Next() if mode.future_only:
                reason = "N (next) looks at a later position"
            case Until() if mode.future_only:
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
    return reasons


def require_expressible(
    formula: Formula,
    alphabet: tuple[str, ...],
    mode: Mode,
    place: Callable[[Formula | Count], str] | None = None,
) -> None:
    """Checks that a mode can express a formula over an alphabet.

    Args:
        formula: the formula.
        alphabet: its symbols.
        mode: the mode.
        place: says where a part of the formula was read, as in "column 5".

    Raises:
        InputError: with all reasons, if it cannot.
    """
    reasons = refusals(formula, alphabet, mode)
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
