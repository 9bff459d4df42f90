"""Copies of the small checkpoints with one thing changed, and the oracles of imports."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bounds
import jax_models as jm
from benchmarks import reference
from jax_models.format.pretrained.load import largest_difference
from tests.bounds.influence.expect import encloses
from tests.written import written

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def weights_of(name):
    return load_file(FIXTURES / name / WEIGHTS)


def copied(name, place, tensors=None, **said):
    """A copy of a fixture; what is said stands in its configuration, `...` leaves out."""
    folder = place / "folder"
    folder.mkdir()
    config = json.loads((FIXTURES / name / "config.json").read_text()) | said
    config = {key: value for key, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is None:
        shutil.copyfile(FIXTURES / name / WEIGHTS, folder / WEIGHTS)
    else:
        save_file(tensors, folder / WEIGHTS)
    return folder


def sharded(folder, files=("one.safetensors", "two.safetensors")):
    """The folder with its weights in files that an index lists; returns the index."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    listed = {name: files[at % len(files)] for at, name in enumerate(sorted(tensors))}
    for file in files:
        held = {name: tensors[name] for name in listed if listed[name] == file}
        save_file(held, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))
    return listed


def without(*names):
    """Of tensors by name: all but these."""
    return lambda old: {name: x for name, x in old.items() if name not in names}


def instead(name, change):
    """Of tensors by name: one of them changed."""
    return lambda old: old | {name: change(old[name])}


def with_value(name, value):
    """Of tensors by name: another value in the matrix of this name, at (1, 2)."""

    def change(tensor):
        tensor = tensor.copy()
        tensor[1, 2] = value
        return tensor

    return instead(name, change)


def refusal(call):
    """The one line that a call is refused with."""
    with pytest.raises(jm.InputError) as caught:
        call()
    (line,) = str(caught.value).splitlines()
    return line


def assert_one_model(name, place, *copies):
    """Copies of a fixture, of tensors and what is said, are one model, byte by byte."""
    models = set()
    for at, (tensors, said) in enumerate(copies):
        (place / str(at)).mkdir()
        folder = copied(name, place / str(at), tensors, **said)
        models.add(jm.model_bytes(jm.from_pretrained(folder)))
    assert len(models) == 1


def assert_says(line, *parts):
    for part in parts:
        assert part in line, line


def assert_rows_are(found, wanted, allowed):
    apart = np.linalg.norm(np.asarray(found) - wanted, axis=-1)
    assert (apart <= allowed * np.linalg.norm(wanted, axis=-1)).all()


def by_rerunning(model, tokens, symbols, positions=None):
    """Changes of the last row [n, V] when each position alone gets each symbol."""
    base = np.asarray(jm.apply(model, tokens))[-1]
    found = np.full((len(tokens), model.vocab_size), np.nan)
    for i in range(len(tokens)) if positions is None else positions:
        for symbol in symbols:
            if symbol != tokens[i]:
                other = tokens.copy()
                other[i] = symbol
                moved = np.asarray(jm.apply(model, other))[-1] - base
                found[i, symbol] = np.linalg.norm(moved)
    return found


def assert_influences_are(model, expected, method):
    """Influences of every symbol that the reference has are its own."""
    wanted = expected["influence"]
    asked = ~np.isnan(wanted)
    found = bounds.compute_influence(
        model,
        expected["tokens"],
        method=method,
        query=-1,  # the reference's row, whatever row a head reads
        symbols=np.flatnonzero(asked.any(axis=0)),
        include_query=True,
    )
    # The reference subtracts two passes, and rounds by some 1e-14 of an output itself.
    slack = 1e-13 * np.linalg.norm(expected["rows"][-1])
    assert encloses(found, wanted, slack)
    assert np.nanmax(wanted) > 1e-2
    if method == "screened":  # which encloses all, and names the largest
        assert wanted[found.position, found.symbol] >= np.nanmax(wanted) - slack
    else:
        assert np.nanmax(found.upper - found.lower) < 1e-8


# As many as the stored references have, so that both run one compiled program.
TOKENS = 12
# Of two ways to compute one model a misread tensor exceeds the other, and not what rounding
# leaves of rows that cancel by construction.
ALLOWED = {"float64": 1e-7, "float32": 2e-3}


def assert_is_plain(model):
    """Rows and logits of an imported model are those of the reference, on a few tokens."""
    free = np.asarray(model.substitutable or range(model.vocab_size))
    table = getattr(model.position, "table", range(TOKENS))
    length = min(TOKENS, len(free), len(table))
    tokens = free[np.linspace(0, len(free) - 1, length).astype(int)]
    pairs = {"rows": (jm.apply(model, tokens), plain_rows(model, tokens))}
    if model.readout is not None:
        wanted = reference.logits(*written(model), tokens)
        pairs["logits"] = jm.apply_logits(model, tokens), wanted
    for name, (found, wanted) in pairs.items():
        apart = largest_difference(np.asarray(found, np.float64), wanted)
        assert apart <= ALLOWED[str(model.dtype)], f"{name} differ by {apart:.2g}"


def plain_rows(model, tokens):
    return reference.forward(*written(model), tokens)
