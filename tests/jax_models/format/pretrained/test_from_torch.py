"""States of torch modules: rows, logits and influences are torch's own, in float64."""

import functools
import pathlib

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from tests.bounds.influence.expect import refused
from tests.jax_models.format.pretrained.folders import (
    assert_influences_are,
    assert_is_plain,
    assert_rows_are,
    assert_says,
    instead,
    refusal,
    with_value,
    without,
)

STATES = pathlib.Path(__file__).parent / "states"
CLASSIFIER = {"embedding": "embedding.weight", "position": "places"}
ENCODER = CLASSIFIER | {"heads": 4, "readout": "classes"}
CASES = {
    "encoder": ENCODER,
    "encoder_causal": ENCODER
    | {"norm_first": True, "activation": "gelu", "causal": True},
    "encoder_bias_free": ENCODER | {"activation": "gelu", "causal": True},
    "encoder_pre_bias_free": ENCODER | {"norm_first": True},
    "nanogpt": {"heads": 4},
    "nanogpt_bias_free": {"heads": 4},
}
IN_PROJ = "encoder.layers.0.self_attn.in_proj_weight"

states = pytest.mark.parametrize("name", CASES)


@functools.cache
def stored(name):
    return load_file(STATES / f"{name}.safetensors")


def expected(name):
    return stored(f"{name}.expected")


def read(name, tensors=None, **said):
    said = {"dtype": "float64"} | CASES[name] | said
    said = {key: value for key, value in said.items() if value is not ...}
    return jm.from_torch(stored(name) if tensors is None else tensors, **said)


@functools.cache
def imported(name):
    return read(name)


@states
def test_rows_and_logits_are_those_of_the_module(name):
    tokens = expected(name)["tokens"]
    assert_rows_are(jm.apply(imported(name), tokens), expected(name)["rows"], 1e-12)
    found = jm.apply_logits(imported(name), tokens)
    assert_rows_are(found, expected(name)["logits"], 1e-12)


OTHERS = {
    "heads": 2,
    "norm_first": False,
    "activation": "relu",
    "layer_norm_eps": 1e-4,
    "causal": False,
    "position": None,
}


@pytest.mark.parametrize("key", OTHERS)
def test_another_setting_is_another_function(key):
    """The references tell every argument's values apart."""
    name = "encoder_causal"
    tensors = stored(name)
    if key == "position":
        tensors = without("places")(tensors)
    model = read(name, tensors, **{key: OTHERS[key]})
    assert_is_plain(model)
    found = jm.apply(model, np.arange(12))
    wanted = np.asarray(jm.apply(imported(name), np.arange(12)))
    apart = np.linalg.norm(np.asarray(found) - wanted, axis=-1)
    assert (apart > 1e-6 * np.linalg.norm(wanted, axis=-1)).any()


@pytest.mark.parametrize("method", ["incremental", "exhaustive"])
@states
def test_influences_are_those_of_the_module(name, method):
    assert_influences_are(imported(name), expected(name), method)


def put_before(wrapper):
    return lambda old: {f"{wrapper}{k}": x for k, x in old.items()}


def encoder_alone(old):
    named = {k.removeprefix("encoder."): x for k, x in old.items()}
    return without("embedding.weight", "places")(named)


TABLE = {"position": stored("encoder")["places"][:, 0]}
WRAPPED = {"embedding": "module._orig_mod.embedding.weight"}
DEFAULTS = {"norm_first": False, "activation": "relu", "causal": False}
SPELLINGS = {
    "compiled": (put_before("_orig_mod."), {}),
    "wrapped twice": (put_before("module._orig_mod."), WRAPPED),
    "the encoder alone": (
        encoder_alone,
        {"embedding": stored("encoder")["embedding.weight"], **TABLE},
    ),
    "a table": (without("places"), TABLE),
    "the read-out's weight": (dict, {"readout": "classes.weight"}),
    "torch's own words": (dict, DEFAULTS),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_a_state_are_one_model(spelling):
    change, said = SPELLINGS[spelling]
    found = read("encoder", change(stored("encoder")), **said)
    assert jm.model_bytes(found) == jm.model_bytes(imported("encoder"))


def test_a_mask_of_attention_is_no_bias():
    held = dict(stored("nanogpt_bias_free"))
    held["transformer.h.0.attn.bias"] = np.ones((1, 1, 20, 20), np.float32)
    found = read("nanogpt_bias_free", held)
    assert jm.model_bytes(found) == jm.model_bytes(imported("nanogpt_bias_free"))


def test_a_tied_read_out_is_the_embedding_and_another_is_not():
    held, tokens = dict(stored("nanogpt")), np.arange(5)
    assert "head.0.weight" not in jm.model_bytes(imported("nanogpt")).decode("latin1")
    held["lm_head.weight"] = 2 * held["lm_head.weight"]
    logits = np.asarray(jm.apply_logits(imported("nanogpt"), tokens))
    found = jm.apply_logits(read("nanogpt", held), tokens)
    np.testing.assert_allclose(found, 2 * logits, rtol=1e-13)


def test_a_state_that_changes_later_leaves_the_model_as_it_was():
    name = "encoder"
    tensors = {key: x.copy() for key, x in stored(name).items()}
    model = read(name, tensors)
    before = np.asarray(jm.apply(model, expected(name)["tokens"]))
    for x in tensors.values():
        x[...] = 0
    found = jm.apply(model, expected(name)["tokens"])
    np.testing.assert_array_equal(found, before)


def test_a_state_keeps_its_type():
    table = stored("encoder")["embedding.weight"].astype(np.float64)
    held = {k: x for k, x in stored("encoder").items() if "embedding" not in k}
    assert read("encoder", held, embedding=table, dtype=None).dtype == np.float32
    held = {k: x.astype(np.float64) for k, x in held.items()}
    assert read("encoder", held, embedding=table, dtype=None).dtype == np.float64


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_becomes_float32_and_one_line_says_so(kind):
    held = {k: x.astype(kind) for k, x in stored("encoder").items()}
    with pytest.warns(UserWarning, match="the state holds .+; the model is float32"):
        model = read("encoder", held, dtype=None)
    assert model.dtype == np.float32


class Tensor:
    """What torch's tensors are to a reader of arrays."""


BIAS, MAP = "encoder.layers.1.norm1.bias", "classes.weight"
CROSS = "encoder.layers.0.multihead_attn.in_proj_bias"
# What is done to the state, what is said beside it, and what the line says.
BROKEN = [
    (lambda old: list(old.items()), {}, ("state is list", "state_dict()")),
    (instead(BIAS, lambda x: Tensor()), {}, (BIAS, "Tensor", "v.numpy()")),
    (lambda old: old | {3: old[BIAS]}, {}, ("state[3]", "by name")),
    (lambda old: {}, {}, ("no layers", "self_attn.in_proj_weight", "alone")),
    (without(BIAS), {}, (BIAS, "expected shape (16,)", "state_dict()")),
    (without(IN_PROJ), {}, ("no layers", "c_attn.weight", "nanoGPT")),
    (instead(IN_PROJ, lambda x: x[:32]), {}, ("(32, 16); expected (48, 16)",)),
    (with_value(IN_PROJ, np.nan), {}, (IN_PROJ, "nan at (1, 2)", "finite")),
    (instead(IN_PROJ, lambda x: x.astype(np.int8)), {}, (IN_PROJ, "int8", "F32")),
    (lambda old: old | {CROSS: old[BIAS]}, {}, (CROSS, "does not", "leave them out")),
    (dict, {"readout": None}, ("classes.bias", "does not have", "readout=")),
    (dict, {"position": None}, ("places", "does not have", "position=")),
    (
        lambda old: old | put_before("decoder.")(old),
        {},
        ("'decoder.encoder.layers.', 'encoder.layers.'", "expected one"),
    ),
    (dict, {"heads": 3}, ("heads = 3 does not divide the width 16",)),
    (dict, {"embedding": ...}, ("embedding = None; expected the name",)),
    (dict, {"embedding": "emb"}, ("'emb' is no tensor", "'classes.bias'")),
    (dict, {"embedding": np.eye(16, dtype=int)}, ("embedding=", "int64")),
    (without("places"), {"position": np.ones((5, 3))}, ("position", "(5, 3)", "16")),
    (instead(MAP, lambda x: x[:, 1:]), {}, ("readout.weight", "(3, 15)", "16")),
    (dict, {"norm_first": "yes"}, ("norm_first = 'yes'", "True or False")),
]


@pytest.mark.parametrize(("change", "said", "parts"), BROKEN)
def test_a_state_that_does_not_fit_is_one_line(change, said, parts):
    state = change(dict(stored("encoder")))
    assert_says(refusal(lambda: read("encoder", state, **said)), *parts)


def test_a_module_in_place_of_its_state_is_told_how_to_give_it():
    with refused(r"state is Tensor; .+state_dict\(\)"):
        jm.from_torch(Tensor(), 2)
