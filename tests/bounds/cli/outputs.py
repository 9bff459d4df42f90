"""What a command wrote, as the tests of commands read it."""

import csv
import fnmatch
import functools
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds import compute_influence

DOCS = Path(__file__).parents[3] / "docs"
HEAD = "command flags seed dtype versions device matmul_precision git_commit".split()
SHAPE = {"num_layers": 1, "num_heads": 1, "d_model": 4, "d_ff": 4}
SHAPE_FLAGS = [f"--{name}={size}" for name, size in SHAPE.items()]
EASY = ["--method=exhaustive"]
TOKENS = [0, 2, 1, 1, 0, 2, 1]  # an input over three symbols
CURVE = "--lengths=4 --num_inputs=1 --weighting=softmax"
# A small run of each command that keeps results.
RUNS = {
    "entropy": ["--lengths=2,4"],
    "depth": ["--num_layers=1", "--num_heads=1"],
    "batch": ["--command=entropy", "--lengths=2,4", "--sweep=p=0.2,0.3"],
    "compile": ["--formula=Q_a", "--alphabet=ab", "--self_test=2"],
    "constants": [*SHAPE_FLAGS, "--lengths=4"],
    "simulate": [*SHAPE_FLAGS, "--lengths=3"],
    "lipschitz": [*SHAPE_FLAGS, "--lengths=4", "--restarts=0", "--num_inputs=1"],
    "sensitivity": [*SHAPE_FLAGS, "--lengths=4"],
    "curve": [*SHAPE_FLAGS, *CURVE.split(), *EASY],
    "influence": [*SHAPE_FLAGS, "--length=4", *EASY],
    "scan": [*SHAPE_FLAGS, "--length=4", "--rows=all", *EASY],
    "supremum": [*SHAPE_FLAGS, "--length=4", "--mask=none", "--position=none"],
    "restrict": [*SHAPE_FLAGS, "--length=6"],
}
TRAIN = "--length=4 --steps=2 --batch_size=2 --num_heads=1 --d_model=4 --d_ff=4"
# And of those that keep none.
EVERY = RUNS | {
    "train": [*TRAIN.split(), "--lengths=3", "--num_inputs=2"],
    "model": SHAPE_FLAGS,
    "sample": ["--length=4"],
    "import": ["--folder=folder"],
}


def written_by(name, end):
    """A file of that end: a command's own, or the one at a path."""
    return Path(name if "/" in str(name) else f"results/{name}/{name}.{end}")


def read_csv(name):
    with written_by(name, "csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_json(name):
    # NaN and infinity are no JSON, though Python would read them.
    text = written_by(name, "json").read_text()
    return json.loads(text, parse_constant=pytest.fail)


def read_arrays():
    with np.load("results/scan/scan.npz") as found:
        return dict(found)


def read_described():
    """Words of docs/columns.md on each column and key, by file and name."""
    shared, files, words = {}, {}, {}
    table = (DOCS / "columns.md").read_text().replace(r"\|", "/")
    for line in table.splitlines():
        first, *more = (cell.strip() for cell in line.split("|")[1:-1] or [""])
        names = [name.strip("`") for name in re.findall(r"`[\w*]+`", first)]
        if names:
            shared[names[0]] = more[0]
            continue
        if first.startswith("**"):
            files[first.strip("*")] = words = {}
            listed = re.findall(r"`(\w+)`", more[1])
            if "those of every JSON" in more[1]:
                listed += HEAD
            words |= {name: shared[name] for name in listed}
            if "as in" in more[1]:
                page = (DOCS / "certificates-of-restrictions.md").read_text()
                words |= dict.fromkeys(re.findall(r"`(\w+)`", page), more[1])
        elif files and more:
            words[more[0].strip("`")] = more[1]
    return files


FILES = read_described()


def find_words(file, name):
    """Meaning of a column or key of a file in docs/columns.md; None if unknown."""
    words = FILES[file]
    for known in words:
        if fnmatch.fnmatchcase(name, known):
            return words[known]
    return None


OUT = Path("results/influence")
SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
NAMES = [*SPECIAL, *"ACDEFGHIKLMNc)("]
# One program, of one method and without radii.
QUICK = ["--method=exhaustive", "--rounding=none"]


record = functools.partial(read_json, "influence")
rows = functools.partial(read_csv, "influence")


def tokens_of(letters):
    return [0, *(NAMES.index(letter) for letter in letters), 2]


def assert_found(folder, letters, **asked):
    """Holds what `influence` wrote against the function's answer to the same question."""
    model = jm.from_pretrained(folder, dtype="float64")
    asked |= {"method": "exhaustive", "rounding": "none"}
    found = compute_influence(model, tokens_of(letters), **asked)
    assert record()["max"] == pytest.approx(found.max, rel=1e-12)
    assert (record()["position"], record()["symbol"]) == (found.position, found.symbol)


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
