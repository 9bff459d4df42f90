"""From flags to substitutes, whose symbols are named or numbered."""

from typing import Any

import numpy as np
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.groups import OneInput
from bounds.influence.targets.base import is_count
from bounds.influence.targets.log_probability_sum import AHEAD
from bounds.influence.targets.table import TARGETS
from jax_models.arguments import show
from jax_models.format.input_files import read_candidates


def number_symbol(name: str, tokenizer: jm.Tokenizer | None, where: str) -> int:
    """Number of the symbol with a name, by the tokenizer, or the number typed."""
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
    """Label, with its unit, of the change of the target that a text names."""
    return TARGETS[text.partition(":")[0]].label


def target_key(target: Any) -> str:
    """Text of a target in keys of a store: its word, or its repr."""
    return target if isinstance(target, str) else repr(target)


def read_substitutes(
    options: OneInput,
    model: jm.Transformer,
    tokenizer: jm.Tokenizer | None,
    length: int,
) -> Int[np.ndarray, "*tokens symbols"] | None:
    """Substitutes that the flags list, padded with -1; None for all of the model's."""
    where, listed = options.candidates, options.symbols
    if listed is not None:
        where = "--symbols"
        symbols = [number_symbol(name, tokenizer, where) for name in listed]
        found = np.array(symbols, object)
    elif where is None:
        return None
    else:
        numbered = lambda name: number_symbol(name, tokenizer, where)
        found = read_candidates(where, numbered)
        if len(found) != length:
            raise jm.InputError(
                f"{where}: {len(found)} rows; expected one for each of the n = {length} "
                "positions of the input, empty or of -1 where nothing is put in"
            )
    every = range(model.vocab_size)
    free = every if model.substitutable is None else model.substitutable
    if wrong := sorted(set(found.flat) - {*free, *(model.special or ()), -1}):
        why = "which is no substitute: the model has symbols 0 to "
        why += f"{model.vocab_size - 1}, and says which are replaced"
        if model.padding is not None and wrong[0] == model.padding.symbol:
            why = "the model's padding, which no row sees; leave it out"
        raise jm.InputError(f"{where} lists the symbol {show(int(wrong[0]))}, {why}")
    return found.astype(np.int64)
