"""Scans of every family's checkpoint are those of forward passes by `transformers`."""

import functools

import numpy as np
import pytest
from safetensors.numpy import load_file

import bounds
import jax_models as jm
from tests.bounds.influence.expect import encloses, refused
from tests.jax_models.format.pretrained.folders import FIXTURES

NAMES = sorted(
    (x.name for x in FIXTURES.iterdir()), key=lambda name: (name != "esm", name)
)


@functools.cache
def passes(name):
    """The model, its input, and all rows of every substitution [n, V, n, d]."""
    model = jm.from_pretrained(FIXTURES / name, dtype="float64")
    tokens = load_file(FIXTURES / name / "expected.safetensors")["tokens"]
    symbols = model.substitutable or range(model.vocab_size)
    shape = len(tokens), model.vocab_size, len(tokens), model.width
    rows = np.full(shape, np.nan)
    for i, token in enumerate(tokens):
        for symbol in set(symbols) - {int(token)} if token in symbols else ():
            changed = np.where(np.arange(len(tokens)) == i, symbol, tokens)
            rows[i, symbol] = jm.apply(model, changed)
    return model, tokens, rows - np.asarray(jm.apply(model, tokens))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("method", ["exhaustive", "incremental", "partial"])
@pytest.mark.parametrize("name", NAMES)
def test_all_rows_of_every_family_are_those_of_forward_passes(name, method):
    model, tokens, moved = passes(name)
    every = list(range(model.vocab_size))
    ask = functools.partial(bounds.scan, rows="all", symbols=every, method=method)
    if method != "exhaustive" and model.token_dropout is not None:
        with refused("the scale of the model's embeddings"):
            ask(model, tokens)
        return
    found = ask(model, tokens)
    exact = np.linalg.norm(moved, axis=-1)
    assert encloses(found, exact, 1e-13 * np.nanmax(exact))
    assert np.nanmax(found.upper - found.lower) < 1e-6 * np.nanmax(exact)
    assert np.nanmax(exact) > 0
