"""Whether a mode can express a formula over an alphabet: all reasons against it."""

from jax_models.errors import InputError
from jax_models.logic.modes import Mode
from jax_models.logic.syntax import (
    Count,
    Formula,
    Next,
    Symbol,
    Until,
    subformulas,
)


def refusals(formula: Formula, alphabet: tuple[str, ...], mode: Mode) -> list[str]:
    """Returns every reason why a mode cannot express a formula, none if it can.

    Args:
        formula: the formula.
        alphabet: its symbols.
        mode: the mode.

    Returns:
        One sentence per reason, in the order in which the formula's parts are met.
    """
    reasons: dict[str, None] = {}
    for part in subformulas(formula):
        match part:
            case Symbol(name) if name not in alphabet:
                reasons[
                    f"the symbol {name!r} is not in the alphabet {' '.join(alphabet)}"
                ] = None
            case Next() if mode.future_only:
                reasons["N (next) looks at a later position"] = None
            case Until() if mode.future_only:
                reasons["U (until) looks at later positions"] = None
            case Count(side="suffix") if mode.future_only:
                reasons["#> counts later positions"] = None
    return list(reasons)


def require_expressible(
    formula: Formula, alphabet: tuple[str, ...], mode: Mode
) -> None:
    """Checks that a mode can express a formula over an alphabet.

    Args:
        formula: the formula.
        alphabet: its symbols.
        mode: the mode.

    Raises:
        InputError: with all reasons, if it cannot.
    """
    reasons = refusals(formula, alphabet, mode)
    if not reasons:
        return
    advice = (
        f"; mode {mode.name} is future-masked and expresses {mode.operators}: use T, TB "
        "or U for operators that look ahead"
        if any("later" in reason for reason in reasons)
        else ""
    )
    raise InputError(
        f"mode {mode.name} cannot express the formula: {'; '.join(reasons)}{advice}"
    )
