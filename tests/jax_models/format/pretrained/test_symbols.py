"""Symbols that a tokenizer names: substitutes, special ones, and what parts two texts."""

import dataclasses
import json
import re
import sys
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import bounds
import jax_models as jm
from bounds.curves.inputs import GivenInputs
from jax_models.format.build import build_model
from tests.bounds.influence.expect import encloses, refused
from tests.jax_models.format.pretrained.folders import (
    FIXTURES,
    assert_rows_are,
    assert_says,
    by_rerunning,
    copied,
    refusal,
)
from tests.written import written

V = 20  # rows of every fixture's embedding
LETTERS = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *"ACDEFGHI"]
MARK = "<|endoftext|>"


def whole(listed, special, kind="WordLevel"):
    """The parts of a `tokenizer.json` that name symbols."""
    vocab = {name: k for k, name in enumerate(listed)}
    if kind == "Unigram":
        vocab = [[name, 0.0] for name in listed]
    added = [
        {"id": len(listed) + k, "content": name, "special": name in special}
        for k, name in enumerate((*special, "added"))
    ]
    return {"model": {"type": kind, "vocab": vocab}, "added_tokens": added}


def with_letters(place, names=LETTERS):
    (place / "vocab.txt").write_text("\n".join(names))


def with_whole(place, kind="WordLevel"):
    stated = whole([f"word{k}" for k in range(12)], [MARK], kind)
    (place / "tokenizer.json").write_text(json.dumps(stated))
    named = {"mask_token": {"content": "word3"}}
    (place / "tokenizer_config.json").write_text(json.dumps(named))


def with_pieces(place):
    with_whole(place, "Unigram")


# What names the symbols of which family, those left to substitute, special ones, and rows
# without a name. The padding of BERT and Qwen2 is symbol 1; that of GPT-2 ends texts.
NAMED_LETTERS = (with_letters, (*range(5, 13),), (0, 2, 3, 4), 7)
CASES = {
    "bert": NAMED_LETTERS,
    "esm": NAMED_LETTERS,
    "gpt2": (with_whole, (*range(3), *range(4, 12), 13), (3, 12), 6),
    "qwen2": (with_pieces, (0, 2, *range(4, 12), 13), (3, 12), 6),
}


@pytest.mark.parametrize("name", CASES)
def test_symbols_are_substituted_that_the_vocabulary_names(name, tmp_path, monkeypatch):
    write, substitutable, special, unnamed = CASES[name]
    folder = copied(name, tmp_path)
    write(folder)
    # What the model is does not depend on an optional package.
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    line = f"^{unnamed} rows of the embedding have no name in "
    with pytest.warns(match=line) as said:
        model = jm.from_pretrained(folder, dtype="float64")
    assert len(said) == 1
    assert (model.substitutable, model.special) == (substitutable, special)


def test_the_tokenizer_may_stand_elsewhere(tmp_path):
    folder = copied("bert", tmp_path)
    with_letters(tmp_path, [*LETTERS, *"KLMNPQR"])  # every row has a name
    assert jm.from_pretrained(folder, dtype="float64").special is None
    model = jm.from_pretrained(folder, dtype="float64", tokenizer=tmp_path)
    assert model.substitutable == tuple(range(5, V))
    with refused("does not exist"):
        jm.from_pretrained(folder, tokenizer=tmp_path / "none")


MARKS = whole([], [MARK] * V)
MARKS["added_tokens"].pop()


@pytest.mark.parametrize(
    ("stated", "complaint"),
    [
        ({}, "is no tokenizer: in its vocabulary: KeyError"),
        ({"model": {"vocab": 3}}, "is no tokenizer"),
        (MARKS, "names no symbol that the model substitutes"),
    ],
)
def test_a_tokenizer_that_names_nothing_is_one_line(stated, complaint, tmp_path):
    folder = copied("bert", tmp_path)
    (folder / "tokenizer.json").write_text(json.dumps(stated))
    assert_says(refusal(lambda: jm.from_pretrained(folder)), complaint)


@pytest.mark.filterwarnings("ignore:7 rows of the embedding have no name")
def test_special_symbols_and_their_positions_are_replaced_where_they_are_listed(
    tmp_path,
):
    folder = copied("bert", tmp_path)
    with_letters(folder)
    model = jm.from_pretrained(folder, dtype="float64")
    tokens = [0, 5, 4, 7, 2]  # [CLS] A [MASK] D [SEP]

    def replaced(**asked):
        found = bounds.scan(model, tokens, method="exhaustive", **asked)
        columns = np.broadcast_to(found.symbols, found.values.shape)
        at = np.argwhere(~np.isnan(found.values))
        return {(int(found.positions[i]), int(columns[i, j])) for i, j in at}

    letters = set(range(5, 13))
    default = {(i, s) for i in (1, 3) for s in letters - {tokens[i]}}
    assert replaced() == default
    assert replaced(symbols=[4, 6, 15]) == {(i, s) for i in (1, 3) for s in (4, 6)}
    assert replaced(positions=[2, 3]) == {
        (i, s) for i in (2, 3) for s in letters - {tokens[i]}
    }


@pytest.mark.parametrize("number", [2**31, -1, True, "1", 2.0])
def test_a_number_of_a_symbol_is_a_row_of_an_embedding(number, tmp_path):
    stated = whole([], [MARK])
    stated["added_tokens"][0]["id"] = number
    (tmp_path / "tokenizer.json").write_text(json.dumps(stated))
    with refused(r"number of a symbol of .* from 0 to"):
        jm.read_tokenizer(tmp_path)


SEPARATOR = 2
SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
NAMED = [*SPECIAL, *"ABCDEFGHIJKLMNOP"]
PAIRS = ("bert", "bert_classifier", "electra_classifier", "albert_classifier")


def template(*pieces):
    kinds = {"A": "Sequence", "B": "Sequence"}
    pair = [{kinds.get(x, "SpecialToken"): {"id": x, "type_id": k}} for x, k in pieces]
    return {"type": "TemplateProcessing", "single": [], "pair": pair}


BERTS = template(("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", 1), ("[SEP]", 1))
TOKENIZERS = {
    "a list of symbols": None,
    "a template": BERTS,
    "BERT's": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 0]},
    "several": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, BERTS]},
}


def imported(name, place, tokenizer=None, **options):
    folder = copied(name, place)
    if tokenizer is None:
        (folder / "vocab.txt").write_text("\n".join(NAMED))
    else:
        vocab = {letter: k for k, letter in enumerate(NAMED)}
        added = [
            {"id": k, "content": x, "special": True} for k, x in enumerate(SPECIAL)
        ]
        model = {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
        stated = {"model": model, "added_tokens": added, "post_processor": tokenizer}
        (folder / "tokenizer.json").write_text(json.dumps(stated))
    return jm.from_pretrained(folder, dtype="float64", **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return imported("bert", tmp_path_factory.mktemp("bert"))


def pair_of(name):
    return load_file(FIXTURES / name / "pairs.safetensors")


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [(name, "a list of symbols") for name in PAIRS]
    + [("bert", x) for x in TOKENIZERS if TOKENIZERS[x]],
)
def test_rows_and_logits_of_a_pair_are_those_of_the_reference(
    tokenizer, name, tmp_path
):
    model, wanted = imported(name, tmp_path, TOKENIZERS[tokenizer]), pair_of(name)
    assert_rows_are(jm.apply(model, wanted["tokens"]), wanted["rows"], 1e-12)
    found = jm.apply_logits(model, wanted["tokens"])
    found = found if wanted["logits"].ndim == 2 else found[0]
    assert_rows_are(found, wanted["logits"], 1e-12)


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [
        ("roberta", None),  # whose types are all 0
        ("distilbert", None),  # which has none
        ("bert", template(("A", 0), ("[SEP]", 0), ("B", 0))),
        ("bert", {"type": "ByteLevel"}),
    ],
)
def test_where_a_tokenizer_gives_no_second_type_there_is_none(
    name, tokenizer, tmp_path
):
    assert type(imported(name, tmp_path, tokenizer).position) is jm.PositionTable


NO_SINGLE, NO_TOKENIZER = "no single symbol stands between", "is no tokenizer: "


@pytest.mark.parametrize(
    ("post", "said"),
    [
        (template(("A", 0), ("B", 1)), NO_SINGLE),
        (template(("A", 0), ("[SEP]", 0), ("[SEP]", 0), ("B", 1)), NO_SINGLE),
        (template(("A", 0), ("[SEP]", 1), ("B", 1)), NO_SINGLE),
        (3, NO_TOKENIZER),
        ({"processors": [1]}, NO_TOKENIZER),
        ({"type": "TemplateProcessing"}, NO_TOKENIZER),
    ],
)
def test_a_template_that_tells_no_types_is_refused(post, said, tmp_path):
    assert_says(refusal(lambda: imported("bert", tmp_path, post)), said)


@pytest.mark.parametrize(
    "method", ["exhaustive", "incremental", "partial", "lumped", "screened"]
)
def test_substitutions_within_a_pair_are_exact_by_every_method(method, model):
    tokens, symbols = pair_of("bert")["tokens"], [5, 8]
    found = bounds.compute_influence(model, tokens, method=method, symbols=symbols)
    asked = ~np.isnan(found.upper)
    positions = np.flatnonzero(asked.any(axis=1))
    assert {1, 5} <= set(positions)
    wanted = by_rerunning(model, tokens, symbols, positions)
    exact = np.where(asked, wanted, np.nan)
    assert encloses(found, exact, 1e-13 * np.nanmax(wanted))


def test_a_substitution_of_the_separator_moves_the_types_behind_it(model):
    tokens = pair_of("bert")["tokens"]
    asked: Any = {"positions": [4], "symbols": [5, 6], "rounding": "none"}
    found = bounds.compute_influence(model, tokens, **asked)
    assert found.method == "exhaustive"
    wanted = by_rerunning(model, tokens, [5, 6], [4])[4, [5, 6]]
    np.testing.assert_allclose(found.upper[4, [5, 6]], wanted, rtol=1e-9)
    with refused("second type behind symbol 2"):
        bounds.compute_influence(model, tokens, method="incremental", **asked)


def test_a_text_alone_is_of_the_first_type(model, tmp_path):
    plain = jm.from_pretrained(copied("bert", tmp_path), dtype="float64")
    tokens = np.r_[pair_of("bert")["tokens"][:-1] % 15 + 3, SEPARATOR]
    np.testing.assert_array_equal(jm.apply(model, tokens), jm.apply(plain, tokens))


@pytest.mark.parametrize(
    ("separator", "left_out", "said"),
    [
        (20, None, "separator = 20; symbols are 0 to 19"),
        ("x", None, "position.separator = 'x'; expected an integer"),
        (2, "position.second", "'position.second' is missing"),
        (2, "position", "'position' is missing"),
    ],
)
def test_a_file_of_pairs_that_is_not_whole_is_refused(separator, left_out, said, model):
    config, tensors = written(model)
    config["position"] = {"kind": "pairs", "separator": separator}
    tensors.pop(left_out, None)
    with refused(re.escape(said)):
        build_model(config, tensors)


def test_searches_over_inputs_are_of_one_text_or_refuse(model):
    few = dataclasses.replace(model, substitutable=(5, 8))
    assert bounds.supremum(few, 2).max > 0
    with refused("second type behind symbol 2"):
        bounds.supremum(few, 3, query=1)
    given = GivenInputs("a pair", (pair_of("bert")["tokens"],))
    with refused("second type behind symbol 2"):
        bounds.estimate_lipschitz(model, 9, inputs=given)
