"""Checkpoints in the layouts that are published go through `import`, `scan` and `curve`."""

import numpy as np
import pytest

import jax_models as jm
from tests.bounds.cli.outputs import largest_change, read_csv, read_json
from tests.jax_models.format.pretrained.folders import weights_of
from tests.jax_models.format.pretrained.test_layouts import (
    Checkpoint,
    gamma,
    left_behind,
    put_before,
    to_torch,
)

ENDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *"ACDEFGHIKLMNPQR"]
ESM = ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>", *"ACDEFGHIKLMNPQR"]
IGLM = [*ENDS, *"ACDEFGHIKLMNP", "[HEAVY]", "[HUMAN]"]
# The family, what changes its tensors, what is done to the folder, the vocabulary.
PUBLISHED = {
    "ESM-2": ("esm", left_behind, None, ESM),
    "IgLM": ("gpt2", left_behind, to_torch, IGLM),
    "BERT of 2018": ("bert", gamma, to_torch, BERT),
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
