"""The command `import` writes the model of a folder, or says in one line why not."""

import pathlib

import numpy as np
import pytest
from safetensors.numpy import save_file

import jax_models as jm
from tests.bounds.cli.outputs import largest_change, read_csv, read_json
from tests.jax_models.format.pretrained.folders import copied, weights_of
from tests.jax_models.format.pretrained.test_layouts import (
    Checkpoint,
    gamma,
    left_behind,
    put_before,
    renamed,
    to_torch,
)

FIXTURES = pathlib.Path(__file__).parents[2] / "jax_models/format/pretrained/fixtures"
OUT = pathlib.Path("results/import")
IMPORTED = [f"--folder={FIXTURES / 'bert'}", "--dtype=float64"]


def test_a_folder_becomes_a_model_file(run):
    flags = [*IMPORTED, f"--check={FIXTURES / 'bert/expected.safetensors'}"]
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
    asked = run("import", *IMPORTED, "--check=off.safetensors")
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


ENDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *"ACDEFGHIKLMNPQR"]
ESM = ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>", *"ACDEFGHIKLMNPQR"]
IGLM = [*ENDS, *"ACDEFGHIKLMNP", "[HEAVY]", "[HUMAN]"]
# The family, what changes its tensors, what is done to the folder, the vocabulary.
PUBLISHED = {
    "ESM-2": ("esm", left_behind, None, ESM),
    "IgLM": ("gpt2", left_behind, to_torch, IGLM),
    "BERT of 2018": ("bert", renamed(gamma), to_torch, BERT),
    "GPT-2 of a trainer": ("gpt2", put_before("module._orig_mod."), None, IGLM),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_checkpoint_is_imported_scanned_and_measured(name, run, tmp_path):
    family, change, finish, vocabulary = PUBLISHED[name]
    one = Checkpoint(family, weights_of(family))
    left = change(one)
    folder = one.write(tmp_path)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    if finish is not None:
        finish(folder)
    (tmp_path / "plain").mkdir()
    plain = Checkpoint(family, weights_of(family)).write(tmp_path / "plain")
    model = jm.from_pretrained(plain, dtype="float64", tokenizer=folder)
    assert run("import", f"--folder={folder}", "--dtype=float64").code == 0
    assert set(left or ()) <= set(read_json("import")["skipped"])
    given = ["--sequence=CADE", "--method=exhaustive"]
    assert run("scan", f"--model={folder}", *given).code == 0
    run("curve", f"--model={folder}", *given, "--lengths=5,6", "--bounds=none").done()
    short, whole = (float(row["influence_upper"]) for row in read_csv("curve"))
    tokens = jm.read_tokenizer(folder).encode("CADE")
    assert whole == pytest.approx(read_json("scan")["max"], rel=1e-9)
    assert whole == pytest.approx(
        largest_change(model, tokens, model.substitutable), rel=1e-9
    )
    beginning = np.delete(tokens, -2)  # of three letters, between the same ends
    assert short == pytest.approx(
        largest_change(model, beginning, model.substitutable), rel=1e-9
    )
