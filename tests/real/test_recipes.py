"""Published maps of a trained model, as their authors' code computes them, in float64."""

import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bounds
import jax_models as jm
from tests.real.test_checkpoints import CHECKPOINTS, PACKAGES, PEER, QUIET, SCRIPT

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("quick_compilation")]
# The heavy chain of trastuzumab from its first residue on.
CHAIN = "EVQLVESGGGLVQPGGSLRLSCAASGFNIK"
LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """AntiBERTy in float64, the tokens and letters, and the maps by their recipes."""
    inside, kind, head = CHECKPOINTS["AntiBERTy"]
    folder, place = PACKAGES / inside, tmp_path_factory.mktemp("recipes")
    if not PEER:
        pytest.fail("PEER_PYTHON is not set; give an interpreter with torch")
    vocabulary = (PACKAGES / "antiberty/trained_models/vocab.txt").read_text().split()
    tokens = [vocabulary.index(x) for x in ("[CLS]", *CHAIN, "[SEP]")]
    letters = [vocabulary.index(x) for x in LETTERS]
    save_file(
        {"tokens": np.asarray(tokens), "letters": np.asarray(letters)}, place / "asked"
    )
    for script, *more in (
        (SCRIPT, "BertForMaskedLM", str(folder), str(place / "rows"), "8"),
        (
            SCRIPT.with_name("peer_recipes.py"),
            kind,
            str(folder),
            str(place / "asked"),
            str(place / "maps"),
        ),
    ):
        command = [PEER, str(script), *more]
        subprocess.run(command, check=True, env=QUIET, capture_output=True)
    model = jm.from_pretrained(folder, dtype="float64", head=head)
    return model, tokens, letters, load_file(place / "maps")


def test_the_dependency_map_is_that_of_its_authors(asked):
    model, tokens, letters, maps = asked
    inner = range(1, len(tokens) - 1)
    found = bounds.recipes.dependency_map(
        model, tokens, symbols=letters, positions=inner
    )
    exact = maps["dependencies"]
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    assert exact.max() > 1
    assert (found.lower - 1e-9 <= exact).all()
    assert (exact <= found.upper + 1e-9).all()


def test_the_categorical_jacobian_is_that_of_its_authors(asked):
    model, tokens, letters, maps = asked
    found = bounds.recipes.categorical_jacobian(
        model, tokens, symbols=letters, positions=range(1, len(tokens) - 1)
    )
    exact = maps["contacts"]
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    assert np.abs(exact).max() > 1
