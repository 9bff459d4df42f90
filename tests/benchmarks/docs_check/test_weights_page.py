"""The weights page: a file written from NumPy is the original's function."""

import warnings

import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from benchmarks.docs_check.commands import ROOT
from benchmarks.docs_check.pages import read_page

NUMPY = [b for b in read_page(ROOT / "docs" / "weights.md") if b.language == "python"]
EPS = np.finfo(np.float64).eps
# Rounding of one layer of width 8 over 32 keys, with logits of order 10.
TOLERANCE = 1000 * EPS
BREAKS = {
    "a transpose is left out": ('"output": mine["out"].T', '"output": mine["out"]'),
    "heads are interleaved": (
        ".T.reshape(3, H, d // H, d)",
        ".T.reshape(3, d // H, H, d).swapaxes(1, 2)",
    ),
}


def run(blocks, old="", new=""):
    """Run blocks in one namespace, with a change, and return it."""
    names = {}
    code = "\n".join(block.text for block in blocks)
    assert old in code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code.replace(old, new, 1), names)
    return names


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_numpy_example_is_the_original_and_the_reference(capsys):
    names = run(NUMPY)
    assert capsys.readouterr().out == "agrees\n"
    tokens = names["tokens"]
    wanted = names["original"](tokens)
    model = np.asarray(jm.apply_logits(jm.load("mine.safetensors"), tokens))
    oracle = reference.logits(*reference.read_file("mine.safetensors"), tokens)
    for found in (model, oracle):
        assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@pytest.mark.parametrize("name", BREAKS)
def test_the_check_of_the_page_notices_a_wrong_import(name, capsys):
    run(NUMPY, *BREAKS[name])
    assert capsys.readouterr().out.startswith("differs by")
