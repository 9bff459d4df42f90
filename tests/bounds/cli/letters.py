"""A checkpoint of letters, and what `influence` wrote of it, for the tests of commands."""

import functools
from pathlib import Path

import numpy as np

from benchmarks import reference
from tests.bounds.cli.outputs import read_csv, read_json
from tests.written import written

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
    config, tensors = written(model)
    config["substitutable"] = list(letters)
    return np.nanmax(reference.influence(config, tensors, tokens))
