"""`sample` writes strings of its language."""

from pathlib import Path

import numpy as np
import pytest

from bounds.curves.measurement import tokens_sha256
from jax_models.languages import get_language
from tests.bounds.cli.outputs import read_json

OUT = Path("results/sample/tokens.npy")


@pytest.mark.parametrize("language", ["parity", "dyck1", "dyck2", "dyck2_prefix"])
def test_the_strings_belong_to_the_language(run, language):
    flags = [f"--language={language}", "--length=12", "--num_inputs=5"]
    assert run("sample", *flags).code == 0
    tokens = np.load(OUT)
    assert (tokens.shape, tokens.dtype) == ((5, 12), np.dtype("<i4"))
    assert len({tuple(row) for row in tokens}) == 5
    assert language == "parity" or get_language(language).contains(tokens).all()


def test_random_strings_use_all_symbols(run):
    run("sample", "--language=random", "--vocab_size=7", "--length=500")
    assert set(np.load(OUT).ravel()) == set(range(7))


def test_the_seed_decides_and_the_record_names_the_strings(run):
    drawn = []
    for flags in (["--seed=1"], ["--seed=1"], ["--seed=2"]):
        run("sample", "--length=64", "--num_inputs=2", *flags)
        drawn.append(np.load(OUT))
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[1] != drawn[2]).any()
    record = read_json("sample")
    assert record["tokens_sha256"] == [tokens_sha256(row) for row in drawn[-1]]
    assert record["vocabulary"] == ["0", "1", "$"]
