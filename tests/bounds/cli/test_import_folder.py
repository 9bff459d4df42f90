"""The command `import` writes the model of a folder, or says in one line why not."""

import pathlib

import numpy as np
from safetensors.numpy import save_file

import jax_models as jm
from tests.bounds.cli.outputs import read_json
from tests.jax_models.format.pretrained.folders import copied, weights_of

FIXTURES = pathlib.Path(__file__).parents[2] / "jax_models/format/pretrained/fixtures"
OUT = pathlib.Path("results/import")
BERT = [f"--folder={FIXTURES / 'bert'}", "--dtype=float64"]


def test_a_folder_becomes_a_model_file(run):
    flags = [*BERT, f"--check={FIXTURES / 'bert/expected.safetensors'}"]
    assert run("import", *flags).code == 0
    record = read_json("import")
    assert set(record["largest_difference"]) == {"rows", "logits"}
    assert max(record["largest_difference"].values()) < 1e-12
    model = jm.load(OUT / "model.safetensors")
    assert model.dtype == np.float64
    assert (model.width, model.vocab_size) == (16, 20)


def test_what_is_skipped_is_listed(run, tmp_path):
    table = {"esm.embeddings.position_embeddings.weight": np.ones((26, 16), np.float32)}
    folder = copied("esm", tmp_path, weights_of("esm") | table)
    asked = run("import", f"--folder={folder}").done()
    record = read_json("import")
    assert record["skipped"] == [
        "esm.contact_head.regression.bias",
        "esm.contact_head.regression.weight",
        *table,
    ]
    assert f"reads them: {', '.join(record['skipped'])}" in " ".join(asked.out.split())


def test_a_reference_that_differs_is_noticed(run, tmp_path):
    tokens = np.arange(4, 10)
    model = jm.from_pretrained(FIXTURES / "bert", dtype="float64")
    rows = np.asarray(jm.apply(model, tokens)) * (1 + 1e-8)
    save_file({"tokens": tokens, "rows": rows}, tmp_path / "off.safetensors")
    asked = run("import", *BERT, "--check=off.safetensors")
    asked.assert_refused("rows differ from those of")
    assert not (OUT / "model.safetensors").exists()
    run("import").assert_refused("--folder is missing")


def test_a_broken_folder_is_one_line_and_exit_code_1(run, tmp_path):
    query = "bert.encoder.layer.0.attention.self.query.weight"
    tensors = {k: x for k, x in weights_of("bert").items() if k != query}
    folder = copied("bert", tmp_path, tensors)
    run("import", f"--folder={folder}").assert_refused("no tensor")
    run("import", f"--folder={tmp_path / 'none'}").assert_refused("is no folder")
    assert not (OUT / "model.safetensors").exists()
