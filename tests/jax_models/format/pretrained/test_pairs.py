"""The second text of a pair has token type 1, as `transformers` gives it, in every method."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import bounds
import jax_models as jm
from bounds.curves.inputs import GivenInputs
from jax_models.format.build import build_model, name_tensors
from jax_models.format.config import encode_config
from jax_models.model.position import PairTable
from tests.jax_models.format.pretrained.folders import (
    FIXTURES,
    assert_rows_are,
    by_rerunning,
    copied,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
SEPARATOR = 2
SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
LETTERS = [*SPECIAL, *"ABCDEFGHIJKLMNOP"]
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
        (folder / "vocab.txt").write_text("\n".join(LETTERS))
    else:
        vocab = {letter: k for k, letter in enumerate(LETTERS)}
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


@pytest.mark.parametrize(
    "pieces",
    [
        (("A", 0), ("B", 1)),
        (("A", 0), ("[SEP]", 0), ("[SEP]", 0), ("B", 1)),
        (("A", 0), ("[SEP]", 1), ("B", 1)),
    ],
)
def test_types_that_no_single_symbol_tells_are_refused(pieces, tmp_path):
    with pytest.raises(jm.InputError, match="no single symbol stands between") as said:
        imported("bert", tmp_path, template(*pieces))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "post", [3, {"processors": [1]}, {"type": "TemplateProcessing"}]
)
def test_a_broken_template_is_a_line(post, tmp_path):
    with pytest.raises(jm.InputError, match="is no tokenizer: ") as said:
        imported("bert", tmp_path, post)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "method",
    [
        "exhaustive",
        "incremental",
        "partial",
        pytest.param("lumped", marks=pytest.mark.slow),
        pytest.param("screened", marks=pytest.mark.slow),
    ],
)
def test_substitutions_within_a_pair_are_exact_by_every_method(method, model):
    tokens, symbols = pair_of("bert")["tokens"], [5, 8]
    found = bounds.compute_influence(model, tokens, method=method, symbols=symbols)
    asked = ~np.isnan(found.upper)
    positions = np.flatnonzero(asked.any(axis=1))
    assert {1, 5} <= set(positions)
    wanted = by_rerunning(model, tokens, symbols, positions)
    slack = 1e-13 * np.nanmax(wanted)
    assert (wanted >= found.lower - slack)[asked].all()
    assert (wanted <= found.upper + slack)[asked].all()


def test_a_substitution_of_the_separator_moves_the_types_behind_it(model):
    tokens = pair_of("bert")["tokens"]
    asked = {"positions": [4], "symbols": [5, 6]}
    found = bounds.compute_influence(model, tokens, **asked)
    assert found.method == "exhaustive"
    wanted = by_rerunning(model, tokens, [5, 6], [4])[4, [5, 6]]
    np.testing.assert_allclose(found.upper[4, [5, 6]], wanted, rtol=1e-9)
    with pytest.raises(jm.InputError, match="second type behind symbol 2"):
        bounds.compute_influence(model, tokens, method="incremental", **asked)


def test_a_text_alone_is_of_the_first_type(model, tmp_path):
    plain = jm.from_pretrained(copied("bert", tmp_path), dtype="float64")
    tokens = np.r_[pair_of("bert")["tokens"][:-1] % 15 + 3, SEPARATOR]
    np.testing.assert_array_equal(jm.apply(model, tokens), jm.apply(plain, tokens))


def test_pairs_go_through_vmap_and_jit(model):
    tokens = pair_of("bert")["tokens"]
    both = jnp.stack([tokens, tokens[::-1]])
    found = jax.jit(jax.vmap(jm.apply, (None, 0)))(model, both)
    expected = [jm.apply(model, one) for one in both]
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-12)


def test_the_separator_is_kept_in_files(model, tmp_path):
    jm.save(model, tmp_path / "model.safetensors")
    again = jm.load(tmp_path / "model.safetensors")
    tokens = pair_of("bert")["tokens"]
    assert isinstance(again.position, PairTable)
    assert again.position.separator == SEPARATOR
    np.testing.assert_array_equal(jm.apply(again, tokens), jm.apply(model, tokens))


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
    tensors = dict(name_tensors(model))
    config = encode_config(model, tensors)
    config["position"] = {"kind": "pairs", "separator": separator}
    tensors.pop(left_out, None)
    with pytest.raises(jm.InputError, match=re.escape(said)):
        build_model(config, tensors)


def test_searches_over_inputs_are_of_one_text_or_refuse(model):
    few = dataclasses.replace(model, substitutable=(5, 8))
    assert bounds.supremum(few, 2).max > 0
    with pytest.raises(jm.InputError, match="second type behind symbol 2"):
        bounds.supremum(model, 3, query=1, query_symbols=[SEPARATOR])
    given = GivenInputs("a pair", (pair_of("bert")["tokens"],))
    with pytest.raises(jm.InputError, match="second type behind symbol 2"):
        bounds.estimate_lipschitz(model, 9, inputs=given)
