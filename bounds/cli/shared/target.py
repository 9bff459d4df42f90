"""Flag on the watched output: rows, logits, or an operation on the logits."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import flags
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.validators import validate_grammar
from bounds.curves.curve import UNITS
from bounds.influence.problem import Watched
from bounds.influence.row_targets import LogProbabilitySum
from bounds.influence.targets import (
    LogitDifference,
    LogOdds,
    LogProbability,
    Loss,
)
from jax_models.arguments import ascii_number, show

# No symbol's number has more digits; Python reads at most some thousand.
MAX_DIGITS = 18
PLAIN = ("activation", "logits", "log_probabilities", "pooled")
FORMS = {
    "log_probability": "log_probability:S",
    "loss": "loss:S",
    "logit_difference": "logit_difference:S:T",
    "log_odds": "log_odds:S,T,...[:EPSILON]",
    "log_probability_sum": "log_probability_sum:S,T,...[:ROW] with own or next for S,T,...",
}
GRAMMAR = ", ".join((*PLAIN, *FORMS.values()))
# Offset from a row to the symbol of the input whose log-probability counts.
AHEAD = {"own": 0, "next": 1}
# Labels of the target's change, where `UNITS` has none.
MOVED = {
    "log_probabilities": "‖Δ log-probabilities‖₂, nats",
    "pooled": "‖Δ pooled vector‖₂",
    "log_probability": "|Δ log-probability|, nats",
    "loss": "|Δ loss|, nats",
    "logit_difference": "|Δ difference of logits|, nats",
    "log_odds": "‖Δ log-odds‖₂, bits",
    "log_probability_sum": "|Δ sum of log-probabilities|, nats",
}


@dataclasses.dataclass(frozen=True)
class InputSum:
    """Sum over rows of the log-probability of one symbol of the input each."""

    ahead: int  # offset from a row to its symbol: 0 its own, 1 the next
    row: int  # first row, from 0

    def of(
        self, tokens: Int[np.ndarray, "tokens"], special: Sequence[int]
    ) -> LogProbabilitySum:
        """The sum for an input, without its special symbols."""
        rows = np.arange(self.row, max(self.row, tokens.size - self.ahead))
        rows = rows[~np.isin(tokens[rows + self.ahead], special)]
        if not rows.size:
            raise jm.InputError(
                f"log_probability_sum from row {self.row} on has no row: the input has "
                f"n = {tokens.size} tokens, of which special ones are not asked for"
            )
        symbols = tokens[rows + self.ahead]
        return LogProbabilitySum(tuple(symbols.tolist()), tuple(rows.tolist()))


def define_target(values: flags.FlagValues) -> None:
    """Adds `--target`, with all targets of influences."""
    flags.DEFINE_string(
        "target",
        "activation",
        f"What is watched of the output at the query: {GRAMMAR}; symbols S, T by name "
        "(with a tokenizer) or number. A sum is over rows from ROW (0) on, one a symbol; "
        "own and next are the input's symbols, at each row or behind it, special ones "
        "left out.",
        flag_values=values,
    )
    seen: dict[str, int] = {}
    validate_grammar(
        values,
        "target",
        lambda text: parse_target(text, lambda name: seen.setdefault(name, len(seen))),
    )


def parse_target(text: str, symbol: Callable[[str], int]) -> Watched | InputSum:
    """Reads a value of `--target`; `symbol` numbers the named symbols."""
    word, *given = text.split(":")
    if not given:
        for plain in PLAIN:
            if plain == word:
                return plain
    if all(name for part in given for name in part.split(",")):
        match word, given:
            case "log_probability_sum", [several, *row] if len(row) < 2:
                first = _row(*row) if row else 0
                if several in AHEAD:
                    return InputSum(AHEAD[several], first)
                symbols = _listed(several, symbol)
                rows = range(first, first + len(symbols))
                return LogProbabilitySum(symbols, tuple(rows))
            case "log_probability", [one]:
                return LogProbability(symbol(one))
            case "loss", [one]:
                return Loss(symbol(one))
            case "logit_difference", [one, other]:
                return LogitDifference(symbol(one), symbol(other))
            case "log_odds", [several, *epsilon] if len(epsilon) < 2:
                return LogOdds(_listed(several, symbol), *map(_number, epsilon))
    expected = FORMS.get(word, GRAMMAR)
    raise jm.InputError(f"{show(text)} is no target; expected {expected}")


def number_symbol(name: str, tokenizer: jm.Tokenizer | None, where: str) -> int:
    """Number of a symbol: the tokenizer's of that name, else the number typed."""
    if name in AHEAD and (tokenizer is None or name not in tokenizer.names):
        raise jm.InputError(
            f"{where}: {name} stands for symbols of the input, in "
            f"log_probability_sum:{name}[:ROW] alone; give a symbol"
        )
    if tokenizer is not None and (name in tokenizer.names or not _is_digits(name)):
        return tokenizer.symbol(name)
    if not _is_digits(name) or len(name) > MAX_DIGITS:
        raise jm.InputError(
            f"symbol {show(name)} of {where} is no number of a symbol, and no tokenizer "
            "has it as a name; give its number, or --tokenizer"
        )
    return int(name)


def unit_of(text: str) -> str:
    """Label of the change of a value of `--target`, with its unit."""
    return {**UNITS, **MOVED}[text.partition(":")[0]]


def target_key(target: Any) -> str:
    """Key of a target in a store: a word, or its operation with numbers."""
    return target if isinstance(target, str) else repr(target)


def _listed(text: str, symbol: Callable[[str], int]) -> tuple[int, ...]:
    return tuple(symbol(name) for name in text.split(","))


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _row(text: str) -> int:
    if not _is_digits(text) or len(text) > MAX_DIGITS:
        raise jm.InputError(
            f"row {show(text)} of log_probability_sum is no position; expected an integer "
            "from 0 on"
        )
    return int(text)


def _number(text: str) -> float:
    try:
        return float(ascii_number(text))
    except ValueError:
        raise jm.InputError(f"epsilon {text!r} of log_odds is no number") from None
