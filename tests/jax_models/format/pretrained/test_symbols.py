"""An imported model substitutes what a text may hold: symbols with names, none special."""

import json
import sys

import numpy as np
import pytest

import bounds
import jax_models as jm
from tests.jax_models.format.pretrained.folders import copied

pytestmark = pytest.mark.usefixtures("quick_compilation")
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


# What names the symbols of which family, those left to substitute, special ones, and rows
# without a name. The padding of BERT and Qwen2 is symbol 1; that of GPT-2 ends texts.
CASES = {
    "bert": (with_letters, range(5, 13), (0, 2, 3, 4), 7),
    "esm": (with_letters, range(5, 13), (0, 2, 3, 4), 7),
    "gpt2": (with_whole, (*range(3), *range(4, 12), 13), (3, 12), 6),
    "qwen2": (
        lambda place: with_whole(place, "Unigram"),
        (0, 2, *range(4, 12), 13),
        (3, 12),
        6,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_symbols_are_substituted_that_the_vocabulary_names(name, tmp_path, monkeypatch):
    write, substitutable, special, unnamed = CASES[name]
    folder = copied(name, tmp_path)
    write(folder)
    # What the model is does not depend on an optional package.
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.warns(
        match=f"^{unnamed} rows of the embedding have no name in "
    ) as said:
        model = jm.from_pretrained(folder, dtype="float64")
    assert len(said) == 1
    assert model.substitutable == tuple(substitutable)
    assert model.special == special
    jm.save(model, tmp_path / "file")
    again = jm.load(tmp_path / "file")
    assert (again.substitutable, again.special) == (model.substitutable, model.special)


def test_the_tokenizer_may_stand_elsewhere(tmp_path):
    folder = copied("bert", tmp_path)
    with_letters(tmp_path, [*LETTERS, *"KLMNPQR"])  # every row has a name
    assert jm.from_pretrained(folder, dtype="float64").special is None
    model = jm.from_pretrained(folder, dtype="float64", tokenizer=tmp_path)
    assert model.substitutable == tuple(range(5, V))
    with pytest.raises(jm.InputError, match="does not exist"):
        jm.from_pretrained(folder, tokenizer=tmp_path / "none")


@pytest.mark.parametrize(
    ("stated", "complaint"),
    [
        ({}, "is no tokenizer: KeyError"),
        ({"model": {"vocab": 3}}, "is no tokenizer"),
        (
            whole([], [MARK] * V)
            | {"added_tokens": whole([], [MARK] * V)["added_tokens"][:-1]},
            "names no symbol that the model substitutes",
        ),
    ],
)
def test_a_tokenizer_that_names_nothing_is_one_line(stated, complaint, tmp_path):
    folder = copied("bert", tmp_path)
    (folder / "tokenizer.json").write_text(json.dumps(stated))
    with pytest.raises(jm.InputError, match=complaint) as caught:
        jm.from_pretrained(folder)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(jm.InputError, match=r"number of a symbol of .* from 0 to"):
        jm.read_tokenizer(tmp_path)
