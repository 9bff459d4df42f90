"""The command `import` writes the model of a folder, or says in one line why not."""

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import save_file

import jax_models as jm

FIXTURES = pathlib.Path(__file__).parents[2] / "jax_models/format/pretrained/fixtures"
OUT = pathlib.Path("results/import")
pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_a_folder_becomes_a_model_file(run):
    bert = FIXTURES / "bert"
    asked = run(
        "import",
        f"--folder={bert}",
        "--dtype=float64",
        f"--check={bert / 'expected.safetensors'}",
    )
    assert asked.code == 0
    record = json.loads((OUT / "import.json").read_text())
    assert set(record["largest_difference"]) == {"rows", "logits"}
    assert max(record["largest_difference"].values()) < 1e-12
    model = jm.load(OUT / "model.safetensors")
    assert model.dtype == np.float64
    assert (model.width, model.vocab_size) == (16, 20)


def test_a_reference_that_differs_is_noticed(run, tmp_path):
    tokens = np.arange(4, 10)
    model = jm.from_pretrained(FIXTURES / "bert", dtype="float64")
    rows = np.asarray(jm.apply(model, tokens)) * (1 + 1e-8)
    save_file({"tokens": tokens, "rows": rows}, tmp_path / "off.safetensors")
    asked = run(
        "import",
        f"--folder={FIXTURES / 'bert'}",
        "--dtype=float64",
        f"--check={tmp_path / 'off.safetensors'}",
    )
    assert asked.code == 1
    assert "rows differ from those of" in asked.err
    assert not (OUT / "model.safetensors").exists()


def test_a_folder_is_asked_for(run):
    asked = run("import")
    assert asked.code == 1
    assert "--folder is missing" in asked.err
