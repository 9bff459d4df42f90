"""A checkpoint of letters, and what `influence` wrote of it, for the tests of commands."""

import csv
import json
from pathlib import Path

OUT = Path("results/influence")
SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
NAMES = [*SPECIAL, *"ACDEFGHIKLMNc)("]
QUICK = ["--method=exhaustive"]


def record():
    return json.loads((OUT / "influence.json").read_text())


def rows():
    with open(OUT / "influence.csv", newline="") as file:
        return list(csv.DictReader(file))


def tokens_of(letters):
    return [0, *(NAMES.index(letter) for letter in letters), 2]
