"""Option on the watched output: rows, logits, or another of `TARGETS`."""

from typing import Any

import jax_models as jm
from bounds.influence.targets.base import NumberSymbol, is_count
from bounds.influence.targets.log_probability_sum import AHEAD
from bounds.influence.targets.table import TARGETS
from jax_models.arguments import show

GRAMMAR = ", ".join(f"{name}{one.form}" for name, one in TARGETS.items())


def check_grammar(text: str) -> None:
    """Raises `InputError` for a text that is no value of `--target`."""
    seen: dict[str, int] = {}
    parse_target(text, lambda name: seen.setdefault(name, len(seen)))


def parse_target(text: str, symbol: NumberSymbol) -> Any:
    """Reads a value of `--target`; `symbol` numbers the named symbols."""
    word, *given = text.split(":")
    if word not in TARGETS:
        raise jm.InputError(f"{show(text)} is no target; expected {GRAMMAR}")
    named = all(name for part in given for name in part.split(","))
    found = TARGETS[word].parse(given, symbol) if named else None
    if found is None:
        expected = f"{word}{TARGETS[word].form}"
        raise jm.InputError(f"{show(text)} is no target; expected {expected}")
    return found


def number_symbol(name: str, tokenizer: jm.Tokenizer | None, where: str) -> int:
    """Number of a symbol: the tokenizer's of that name, else the number typed."""
    if name in AHEAD and (tokenizer is None or name not in tokenizer.names):
        raise jm.InputError(
            f"{where}: {name} stands for symbols of the input, in "
            f"log_probability_sum:{name}[:ROW] alone; give a symbol"
        )
    digits = name.isascii() and name.isdecimal()
    if tokenizer is not None and (name in tokenizer.names or not digits):
        return tokenizer.symbol(name)
    if not is_count(name):
        raise jm.InputError(
            f"symbol {show(name)} of {where} is no number of a symbol, and no tokenizer "
            "has it as a name; give its number, or --tokenizer"
        )
    return int(name)


def unit_of(text: str) -> str:
    """Label of the change of a value of `--target`, with its unit."""
    return TARGETS[text.partition(":")[0]].label


def target_key(target: Any) -> str:
    """Key of a target in a store: a word, or its operation with numbers."""
    return target if isinstance(target, str) else repr(target)
