"""Every family's rows, logits and influences are those of `transformers`, in float64."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import bounds
import jax_models as jm
from jax_models.format.pretrained.families import FAMILIES
from jax_models.model.transformer import embed
from tests.bounds.influence.expect import encloses, refused
from tests.jax_models.format.pretrained.folders import (
    FIXTURES,
    assert_influences_are,
    assert_is_plain,
    assert_rows_are,
    by_rerunning,
    copied,
    weights_of,
)

NAMES = sorted(x.name for x in FIXTURES.iterdir())
FAST = ("bert", "esm", "gpt2", "llama")

folders = pytest.mark.parametrize("name", NAMES)


@functools.cache
def imported(name, dtype="float64"):
    return jm.from_pretrained(FIXTURES / name, dtype=dtype)


@functools.cache
def expected(name):
    return load_file(FIXTURES / name / "expected.safetensors")


def test_every_family_has_a_fixture():
    kinds = {"xlm-roberta": "roberta", "camembert": "roberta"}
    assert {kinds.get(name, name) for name in FAMILIES} <= set(NAMES)


@folders
def test_every_row_is_that_of_the_reference(name):
    found = jm.apply(imported(name), expected(name)["tokens"])
    assert_rows_are(found, expected(name)["rows"], 1e-12)
    assert_rows_are(found, expected(name)["unpatched_rows"], 1e-5)
    assert_is_plain(imported(name))
    if name != "bert_model":
        found = jm.apply_logits(imported(name), expected(name)["tokens"])
        wanted = expected(name)["logits"]
        assert_rows_are(found if wanted.ndim == 2 else found[0], wanted, 1e-12)


@pytest.mark.parametrize("name", ["bert", "roberta", "esm", "mistral"])
def test_padding_behind_the_tokens_changes_no_row(name):
    model, tokens = imported(name), expected(name)["tokens"][:-1]
    filled = np.append(tokens, model.padding.symbol)
    found = jm.apply(model, filled)[:-1]
    assert_rows_are(found, np.asarray(jm.apply(model, tokens)), 1e-13)


@pytest.mark.parametrize("name", FAST)
def test_the_folder_keeps_its_type(name):
    model = imported(name, None)
    assert model.dtype == jnp.float32
    found = jm.apply(model, expected(name)["tokens"])
    assert_rows_are(found, expected(name)["rows"], 1e-4)


@folders
def test_heads_of_sequences_are_of_one_row(name):
    """The first; of decoders the last, as of no fixture here."""
    row = "first" if name.endswith("_classifier") else None
    assert imported(name).head_row == row


def test_a_pooler_is_of_the_first_row_and_a_decoders_classifier_of_the_last(tmp_path):
    model = jm.from_pretrained(FIXTURES / "bert_model", dtype="float64", head="pooler")
    found = jm.apply_logits(model, expected("bert_model")["tokens"])
    assert_rows_are(found[0], expected("bert_model")["logits"], 1e-12)
    assert model.head_row == "first"
    width = imported("llama").width
    more = {"score.weight": np.ones((3, width), np.float32)}
    folder = copied("llama", tmp_path, weights_of("llama") | more)
    assert jm.from_pretrained(folder, head="classifier").head_row == "last"


NO_RULE = "the scale of the model's embeddings goes with"
ROTARY = "it needs a rule for rotary positions, which layer 0 has"
TURNED = (
    *("llama", "llama_linear", "mistral", "qwen2", "gpt_neox", "gpt_neox_serial"),
    *("modernbert", "modernbert_classifier"),
)
ROTARIES = {
    **dict.fromkeys(TURNED, ROTARY),
    **dict.fromkeys(("qwen3", "qwen3_yarn"), "it needs a rule for a norm of queries"),
    **dict.fromkeys(("esm", "esm1b"), NO_RULE),
}
MASKED = dict.fromkeys(
    ("gpt2", "gpt2_inverse_layers", "opt", "opt_post"), "attention without a mask"
)
REFUSED = {"lumped": {**ROTARIES, **MASKED}, "screened": ROTARIES}


UNABLE = [(way, name) for way in REFUSED for name in REFUSED[way]]


@pytest.mark.parametrize(("method", "name"), UNABLE)
def test_a_method_without_a_rule_for_a_family_refuses_by_name(method, name):
    tokens = expected(name)["tokens"]
    with refused(REFUSED[method][name]):
        bounds.compute_influence(imported(name), tokens, method=method)


METHODS = ("incremental", "exhaustive", "partial", "lumped", "screened")
ABLE = [(x, way) for x in NAMES for way in METHODS if x not in REFUSED.get(way, {})]


@pytest.mark.parametrize(("name", "method"), ABLE)
def test_influences_are_those_of_the_reference(name, method):
    assert_influences_are(imported(name), expected(name), method)


@folders
def test_padding_is_no_substitute(name):
    """But of decoders whose folder has none, or ends texts with it."""
    said = imported(name).substitutable
    assert said is not None
    assert (1 in said) == name.startswith("gpt2")
    assert (imported(name).padding is None) == name.startswith("gpt2")


def test_albert_stores_a_layer_once():
    model = imported("albert")
    assert len(model.layers) == 8
    assert len({id(layer) for layer in model.layers}) == 4
    assert model.width == 16
    assert model.embedding_width == 6


MASK = 3


def with_masks():
    tokens = expected("esm")["tokens"].copy()
    tokens[[2, 7]] = MASK
    return tokens


def test_masked_rows_are_zero_and_the_others_grow():
    model = imported("esm")
    rows = np.asarray(embed(model, jnp.asarray(with_masks())))
    assert not rows[[2, 7]].any()
    grown = (1 - 0.15 * 0.8) / (1 - 2 / 12)
    table = np.asarray(model.embedding)[with_masks()[0]]
    np.testing.assert_allclose(rows[0], grown * table, rtol=1e-14)


@pytest.mark.parametrize("method", ["exhaustive", "incremental"])
def test_beside_masks_substitutions_of_others_are_exact(method):
    model, tokens, symbols = imported("esm"), with_masks(), [0, 4, 5]
    positions = np.flatnonzero(tokens != MASK)
    asked = {"symbols": symbols, "positions": positions, "include_query": True}
    found = bounds.compute_influence(model, tokens, method=method, **asked)
    wanted = by_rerunning(model, tokens, symbols)
    asked = ~np.isnan(found.upper)
    assert asked.sum() > 20
    assert encloses(found, np.where(asked, wanted, np.nan), 1e-13)


def test_a_substitution_by_the_mask_moves_all_rows():
    model, tokens = imported("esm"), expected("esm")["tokens"]
    found = bounds.compute_influence(model, tokens, symbols=[MASK], rounding="none")
    assert found.method == "exhaustive"
    wanted = by_rerunning(model, tokens, [MASK])[:-1]
    np.testing.assert_allclose(found.upper[:-1], wanted, rtol=1e-9)
    with refused("how many tokens are symbol 3"):
        bounds.compute_influence(model, tokens, symbols=[MASK], method="incremental")


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: bounds.certify_influence(model, with_masks()),
        lambda model: bounds.closed_form_bounds(model, 9),
        lambda model: bounds.supremum(model, 9),
    ],
)
def test_what_does_not_know_it_refuses(ask):
    with refused("scale"):
        ask(imported("esm"))
