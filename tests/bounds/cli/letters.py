"""A checkpoint of letters, and what `influence` wrote of it, for the tests of commands."""

import functools
from pathlib import Path

import jax
import numpy as np

import jax_models as jm
from tests.bounds.cli.outputs import read_csv, read_json

OUT = Path("results/influence")
SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
NAMES = [*SPECIAL, *"ACDEFGHIKLMNc)("]
QUICK = ["--method=exhaustive"]


record = functools.partial(read_json, "influence")
rows = functools.partial(read_csv, "influence")


def tokens_of(letters):
    return [0, *(NAMES.index(letter) for letter in letters), 2]


def largest_change(model, tokens, letters):
    """Of the last row, when a letter that is not the last symbol becomes another one."""
    tokens = np.array(tokens)
    changed = [
        np.where(np.arange(tokens.size) == at, symbol, tokens)
        for at in range(tokens.size - 1)
        for symbol in letters
        if tokens[at] in letters and tokens[at] != symbol
    ]
    rows = jax.vmap(lambda x: jm.apply(model, x)[-1])(np.stack([tokens, *changed]))
    return float(np.linalg.norm(np.asarray(rows[1:] - rows[0]), axis=1).max())
