"""The flag that says what is watched: rows, logits, or an operation on the logits."""

from collections.abc import Callable
from typing import Any

from absl import flags

import jax_models as jm
from bounds.cli.shared.flags import validate_grammar
from bounds.curves.curve import UNITS
from bounds.influence.problem import Watched
from bounds.influence.targets import (
    LogitDifference,
    LogOdds,
    LogProbability,
    Loss,
)
from jax_models.arguments import show

# More digits are no number of a symbol; Python reads no more than some thousand.
MAX_DIGITS = 18
PLAIN = ("activation", "logits", "log_probabilities", "pooled")
GRAMMAR = (
    f"{', '.join(PLAIN)}, log_probability:S, loss:S, logit_difference:S:T, or "
    "log_odds:S,T,...[:EPSILON]"
)
# How what is watched moves, where it is no norm that `UNITS` has.
MOVED = {
    "log_probabilities": "‖Δ log-probabilities‖₂, nats",
    "pooled": "‖Δ pooled vector‖₂",
    "log_probability": "|Δ log-probability|, nats",
    "loss": "|Δ loss|, nats",
    "logit_difference": "|Δ difference of logits|, nats",
    "log_odds": "‖Δ log-odds‖₂, bits",
}


def define_target(values: flags.FlagValues) -> None:
    """Add `--target`, with all that influences may watch."""
    flags.DEFINE_string(
        "target",
        "activation",
        f"What is watched of the output at the query: {GRAMMAR}, of symbols S, T by name "
        "(with a tokenizer) or number.",
        flag_values=values,
    )
    seen: dict[str, int] = {}
    validate_grammar(
        values,
        "target",
        lambda text: parse_target(text, lambda name: seen.setdefault(name, len(seen))),
    )


def parse_target(text: str, symbol: Callable[[str], int]) -> Watched:
    """Returns what a value of `--target` means.

    Args:
        text: As typed.
        symbol: From what is typed of a symbol to its number.

    Raises:
        InputError: It means nothing, or there is no such symbol.
    """
    word, *given = text.split(":")
    if not given:
        for plain in PLAIN:
            if plain == word:
                return plain
    if all(given):
        match word, given:
            case "log_probability", [one]:
                return LogProbability(symbol(one))
            case "loss", [one]:
                return Loss(symbol(one))
            case "logit_difference", [one, other]:
                return LogitDifference(symbol(one), symbol(other))
            case "log_odds", [several, *epsilon] if len(epsilon) < 2:
                symbols = tuple(symbol(name) for name in several.split(","))
                return LogOdds(symbols, *map(_number, epsilon))
    raise jm.InputError(f"{show(text)} is no target; expected {GRAMMAR}")


def number_symbol(name: str, tokenizer: jm.Tokenizer | None, where: str) -> int:
    """Returns the number of a symbol: the tokenizer's of that name, else the number typed.

    Args:
        name: What is typed of it.
        tokenizer: What names symbols.
        where: The flag or the file that has it.

    Raises:
        InputError: It is neither.
    """
    if tokenizer is not None and (name in tokenizer.names or not name.isdecimal()):
        return tokenizer.symbol(name)
    if not name.isdecimal() or len(name) > MAX_DIGITS:
        raise jm.InputError(
            f"symbol {show(name)} of {where} is no number of a symbol, and no tokenizer "
            "has it as a name; give its number, or --tokenizer"
        )
    return int(name)


def unit_of(text: str) -> str:
    """Returns what is measured in a value of `--target`, with its unit."""
    return {**UNITS, **MOVED}[text.partition(":")[0]]


def target_key(target: Any) -> str:
    """Returns what names a target in a store: a word, or its operation with numbers."""
    return target if isinstance(target, str) else repr(target)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise jm.InputError(f"epsilon {text!r} of log_odds is no number") from None
