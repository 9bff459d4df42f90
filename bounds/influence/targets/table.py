"""The table of targets by name, and checks of a requested target.

A target is a quantity watched of a model's output at one or more rows (positions). A
sequence head classifies a sequence from one row of its own.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from bounds.influence.targets.base import (
    Activation,
    Logits,
    NumberSymbol,
    Target,
    is_count,
)
from bounds.influence.targets.cosine_distance import CosineDistance
from bounds.influence.targets.function import TargetFunction
from bounds.influence.targets.jensen_shannon import JensenShannon
from bounds.influence.targets.kl import KullbackLeibler
from bounds.influence.targets.log_odds import LogOdds
from bounds.influence.targets.log_probability import (
    LogProbabilities,
    LogProbability,
    Loss,
)
from bounds.influence.targets.log_probability_sum import AHEAD, LogProbabilitySum
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.influence.targets.pooled import Pooled
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, show
from jax_models.format.pretrained.tokenizer import Tokenizer
from jax_models.run.evaluate import require_readout

_ALL: tuple[type[Target], ...] = (
    Activation,
    Logits,
    LogProbabilities,
    Pooled,
    LogProbability,
    Loss,
    LogitDifference,
    LogOdds,
    LogProbabilitySum,
    KullbackLeibler,
    JensenShannon,
    CosineDistance,
)
# Targets by the names that they have on the command line.
TARGETS = {one.name: one for one in _ALL}
GRAMMAR = ", ".join(f"{name}{one.form}" for name, one in TARGETS.items())
# The targets that a name stands for in Python too.
_NAMED: dict[str, Any] = {name: one for name, one in TARGETS.items() if not one.form}

# What influences and scans watch: a name, or a value.
Watched: TypeAlias = str | Target | TargetFunction


def as_value(target: Any) -> Any:
    """Target that a name stands for; `target` itself if it is not a name."""
    return _NAMED[target]() if isinstance(target, str) else target


def check_target(model: Transformer, target: Any) -> Any:
    """Target checked for a model: a value, or the name "activation" or "logits"."""
    if not isinstance(target, Target | TargetFunction):
        choose_name("target", target, tuple(_NAMED))
    value = as_value(target)
    if value.reads == "logits":
        require_readout(model)
        if (model.classes or 0) < value.least_logits:
            raise InputError(
                f"target = {value} is of probabilities, and the model has one logit, "
                "whose probability is always 1; watch the logits"
            )
    return value.name if isinstance(value, Activation | Logits) else value.of(model)


def check_head_row(
    model: Transformer,
    target: Any,
    rows: Sequence[int],  # not looked at where the target has rows of its own
    length: int,
) -> None:
    """Raises `InputError` if a sequence head is watched at a row other than its own."""
    value = as_value(target)
    if model.head_row is None or value.reads == "activation":
        return
    if value.is_joint:
        rows = value.rows(length).tolist()
    # A pooler read at another row gives a number that means nothing.
    own = 0 if model.head_row == "first" else length - 1
    for row in rows:
        if row != own:
            raise InputError(
                f"row {row} is watched, and the model's head, a pooler or classifier of "
                f"sequences, is of the {model.head_row} row alone; watch row "
                f"{0 if own == 0 else -1}, or the activation"
            )


def check_grammar(text: str) -> None:
    """Raises `InputError` for a text that is no value of `--target`."""
    seen: dict[str, int] = {}
    parse_target(text, lambda name: seen.setdefault(name, len(seen)))


def parse_target(text: str, symbol: NumberSymbol) -> Any:
    """Target that a text such as "kl" names; `symbol` maps symbol names to numbers."""
    word, *given = text.split(":")
    if word not in TARGETS:
        raise InputError(f"{show(text)} is no target; expected {GRAMMAR}")
    named = all(name for part in given for name in part.split(","))
    found = TARGETS[word].parse(given, symbol) if named else None
    if found is None:
        expected = f"{word}{TARGETS[word].form}"
        raise InputError(f"{show(text)} is no target; expected {expected}")
    return found


def number_symbol(name: str, tokenizer: Tokenizer | None, where: str) -> int:
    """Number of a symbol, from its name by the tokenizer, or from its digits."""
    if name in AHEAD and (tokenizer is None or name not in tokenizer.names):
        raise InputError(
            f"{where}: {name} stands for symbols of the input, in "
            f"log_probability_sum:{name}[:ROW] alone; give a symbol"
        )
    digits = name.isascii() and name.isdecimal()
    if tokenizer is not None and (name in tokenizer.names or not digits):
        return tokenizer.symbol(name)
    if not is_count(name):
        raise InputError(
            f"symbol {show(name)} of {where} is no number of a symbol, and no tokenizer "
            "has it as a name; give its number, or --tokenizer"
        )
    return int(name)


def unit_of(text: str) -> str:
    """Label, with unit, of the size of change of the target that a text names."""
    return TARGETS[text.partition(":")[0]].label


def target_key(target: Any) -> str:
    """Text of a target in keys of stored results: its name, or its repr."""
    return target if isinstance(target, str) else repr(target)
