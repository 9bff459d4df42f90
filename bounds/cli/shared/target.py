"""From flags to substitutes, whose symbols are named or numbered."""

import dataclasses
import os
from typing import Any

import numpy as np
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.groups import OneInput
from bounds.influence.targets.base import is_count
from bounds.influence.targets.log_probability_sum import AHEAD
from bounds.influence.targets.table import TARGETS
from jax_models.arguments import expect_file, show
from jax_models.errors import errors_of
from jax_models.format.input_files import load_array, read_whole
from jax_models.format.pretrained.tokenizer import list_substitutes


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
    path, listed = options.candidates, options.symbols
    free = range(model.vocab_size)
    free = set(free if model.substitutable is None else model.substitutable)
    if path is None and listed is None:
        if tokenizer is None:
            return None
        where = str(options.tokenizer or options.model)
        return np.array(named_substitutes(model, tokenizer, where), np.int64)
    free.update(model.special or ())
    if listed is not None:
        where = "--symbols"
        symbols = [number_symbol(name, tokenizer, where) for name in listed]
        found = np.array(symbols, object)
    else:
        assert path is not None
        where = path
        found = _read_candidates(path, tokenizer)
        if len(found) != length:
            raise jm.InputError(
                f"{path}: {len(found)} rows; expected one for each of the n = {length} "
                "positions of the input, empty or of -1 where nothing is put in"
            )
    if wrong := sorted(set(found.flat) - free - {-1}):
        why = "which is no substitute: the model has symbols 0 to "
        why += f"{model.vocab_size - 1}, and says which are replaced"
        if model.padding is not None and wrong[0] == model.padding.symbol:
            why = "the model's padding, which no row sees; leave it out"
        raise jm.InputError(f"{where} lists the symbol {show(int(wrong[0]))}, {why}")
    return found.astype(np.int64)


def named_substitutes(
    model: jm.Transformer, tokenizer: jm.Tokenizer, where: str
) -> list[int]:
    """Substitutable symbols of a model that occur in a tokenizer's texts."""
    every = range(model.vocab_size)
    free = every if model.substitutable is None else model.substitutable
    return list_substitutes(free, tokenizer.named, tokenizer.special, where)


def with_named_symbols(
    model: jm.Transformer, tokenizer: jm.Tokenizer | None, where: str
) -> jm.Transformer:
    """Model that substitutes only symbols that the tokenizer, if any, names."""
    if tokenizer is None:
        return model
    named = tuple(named_substitutes(model, tokenizer, where))
    if named == model.substitutable:
        return model
    return dataclasses.replace(model, substitutable=named)


def special_symbols(
    model: jm.Transformer, tokenizer: jm.Tokenizer | None
) -> tuple[int, ...]:
    """Special symbols of a model and its tokenizer, not replaced by default."""
    return (*(model.special or ()), *(() if tokenizer is None else tokenizer.special))


def _read_candidates(path: str, tokenizer: jm.Tokenizer | None) -> np.ndarray:
    """Symbols in each row of a file, padded with -1."""
    expect_file("--candidates", path)
    if os.fspath(path).endswith(".npy"):
        found = load_array(path)
        if found.ndim != 2:
            raise jm.InputError(
                f"{path}: integers of shape {list(found.shape)}; expected (n, K), a row "
                "of symbols for each position, filled up with -1"
            )
        return found
    lines = [line.split() for line in read_whole("candidates", path).splitlines()]
    rows = []
    for at, line in enumerate(lines, 1):
        with errors_of(f"{path}: line {at}"):
            rows.append([number_symbol(name, tokenizer, path) for name in line])
    filled = np.full((len(rows), max(map(len, rows), default=0)), -1, object)
    for at, row in enumerate(rows):
        filled[at, : len(row)] = row
    return filled
