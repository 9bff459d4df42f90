"""A folder that is broken or asks what is not supported is refused in one line."""

import json
import os
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import jax_models as jm
from tests.jax_models.format.pretrained import folders
from tests.jax_models.format.pretrained.folders import (
    INDEX,
    WEIGHTS,
    assert_one_model,
    assert_says,
    copied,
    instead,
    sharded,
    weights_of,
    with_value,
    without,
)

QUERY = "bert.encoder.layer.0.attention.self.query.weight"


def refusal(folder, **options):
    return folders.refusal(lambda: jm.from_pretrained(folder, **options))


def query_as(change):
    return instead(QUERY, change)


def adding(name, size):
    return lambda old: old | {name: np.ones(size, np.float32)}


SINKS = "layers.0.self_attn.sinks"
BIAS = "encoder.rel_bias.weight"
GAMMA = "bert.embeddings.LayerNorm.gamma"
OTHERS = ("does not have", "configuration")  # said of tensors that are not known
# What is done to the tensors of which checkpoint, and what is said of it.
TENSORS = [
    ("bert", without(QUERY), (QUERY, "no tensor", "expected shape (16, 16)", "fetch")),
    ("bert", lambda old: {}, ("no tensor 'emb", "expected shape (20, 16)", "fetch")),
    ("bert", query_as(lambda x: x[:8].copy()), (QUERY, "(8, 16); expected (16, 16)")),
    ("bert", with_value(QUERY, np.nan), (QUERY, "nan at (1, 2)", "must be finite")),
    (
        "bert",
        query_as(lambda x: x.astype(np.int8)),
        (QUERY, "I8; expected one of F64, F32, F16, BF16", "turned back first"),
    ),
    ("bert", adding("bert.adapter.weight", 3), ("'bert.adapter.weight'", *OTHERS)),
    ("bert_model", adding(BIAS, 3), (f"'{BIAS}'", *OTHERS)),
    # Of another family's writers.
    ("bert", adding("bert.rotary_emb.inv_freq", 3), ("'bert.rotary_emb", *OTHERS)),
    ("llama", adding(f"model.{SINKS}", 2), (SINKS, "has attention sinks")),
    ("bert", adding(GAMMA, 16), (GAMMA, "LayerNorm.weight", "two names of one")),
]
SLOWER, DISAGREE = {"type": "linear", "factor": 2.0}, "which disagree; leave one"
YARN = {"type": "yarn", "factor": 4.0, "rope_theta": 1.0}
LINEAR = {"rope_type": "linear", "factor": 2.0}
TWICE = {"rope_parameters": LINEAR, "rope_scaling": LINEAR | {"factor": 4.0}}
THETAS = {"rope_parameters": LINEAR | {"rope_theta": 5e5}, "rope_theta": 1e4}
ROPE = [
    ({"rope_type": "yarn"}, ("factor in", "= None; expected a finite number")),
    ({"rope_type": "llama3", "factor": 8.0}, ("low_freq_factor in", "= None")),
    ({"rope_theta": -1}, ("rope_theta in", "= -1; expected a positive number")),
    ({"partial_rotary_factor": 0.5}, ("partial_rotary_factor", "0.5; expected 1")),
    ("yarn", ("'yarn'; expected an object",)),
]
# What is set in which configuration, and what is said of it.
SETTINGS = [
    ("bert", {"vocab_size": 21}, ("word_embeddings", "(20, 16); expected (21, 16)")),
    ("bert", {"hidden_size": 15}, ("num_attention_heads = 2", "does not divide", "15")),
    ("bert", {"hidden_size": ...}, ("hidden_size", "None; expected an integer >= 1")),
    ("bert", {"num_hidden_layers": 3}, ("layer.2.", "no tensor", "expected shape")),
    ("bert", {"layer_norm_eps": "x"}, ("epsilon = 'x'; expected a finite number",)),
    ("bert", {"hidden_act": "gelu_fast"}, ("hidden_act", "gelu_fast", "gelu_new")),
    ("bert", {"model_type": "t5"}, ("model_type", "'t5'", "bert", "qwen2")),
    ("bert", {"architectures": ["BertForNextSentence"]}, ("head=", "ForMask")),
    ("bert", {"architectures": "BertModel"}, ("'BertModel'; expected a list",)),
    ("bert", {"position_embedding_type": "relative_key"}, ("relative_key", "added")),
    ("bert", {"tie_word_embeddings": "no"}, ("tie_word", "'no'; expected true or")),
    ("bert", {"tie_word_embeddings": False}, ("decoder.weight", "masked_lm")),
    ("roberta", {"pad_token_id": "x"}, ("pad_token_id", "'x'; expected a symbol's")),
    ("roberta", {"pad_token_id": -2}, ("pad_token_id", "-2; expected 0 to 22")),
    ("esm", {"position_embedding_type": "relative_key"}, ("relative_key", "rotary")),
    ("esm", {"position_embedding_type": ...}, ("position_embeddings", "no tensor")),
    ("esm", {"emb_layer_norm_before": True}, ("layer_norm.weight", "no tensor")),
    ("esm", {"mask_token_id": None}, ("token_dropout.mask = None", "expected")),
    ("llama", {"num_key_value_heads": 3}, ("k_proj", "(12, 16); expected (18, 16)")),
    (
        "mistral",
        {"sliding_window": 0},
        ("sliding_window", "0; expected an integer >= 1"),
    ),
    ("modernbert", {"mlp_bias": True}, ("mlp_bias = True", "without biases")),
    ("modernbert", {"local_rope_theta": None}, ("local_rope_theta", "is null")),
    (
        "modernbert",
        {"rope_scaling": SLOWER},
        ("rope_parameters", "rope_scaling", DISAGREE),
    ),
    ("modernbert", {"local_rope_theta": 2.0}, ("local_rope_theta", "is 2, which dis")),
    ("qwen3_yarn", {"rope_parameters": YARN}, ("theta of YaRN in", "= 1.0; expected")),
    ("modernbert", {"layer_types": ["full_attention"]}, ("lists 1", "expected 3")),
    ("modernbert_classifier", {"classifier_pooling": "mean"}, ("'mean'", "first row")),
    ("gpt_neox", {"attention_bias": False}, ("attention_bias", "not supported")),
    ("opt", {"word_embed_proj_dim": 8}, ("word_embed_proj_dim = 8", "another width")),
    ("opt", {"enable_bias": False}, ("enable_bias", "not supported")),
    ("llama", TWICE, ("'factor': 2.0", "rope_scaling", "'factor': 4.0", DISAGREE)),
    ("llama", THETAS, ("rope_parameters", "is 500000 and", "is 10000,", DISAGREE)),
    ("albert", {"num_hidden_layers": 10**30}, ("_layers = 1000", "at most 10000")),
    *(
        ("llama", {"rope_parameters": ..., key: rope}, (f"{key} of", *parts))
        for key in ("rope_parameters", "rope_scaling")
        for rope, parts in ROPE
    ),
]
CASES = [(name, change, {}, parts) for name, change, parts in TENSORS]
CASES += [(name, None, said, parts) for name, said, parts in SETTINGS]


@pytest.mark.parametrize(("name", "change", "said", "parts"), CASES)
def test_a_tensor_or_setting_that_does_not_fit_is_named(
    name, change, said, parts, tmp_path
):
    tensors = None if change is None else change(weights_of(name))
    assert_says(refusal(copied(name, tmp_path, tensors, **said)), "folder", *parts)


SCALED = {"rope_type": "longrope", "factor": 4.0}


@pytest.mark.parametrize(
    ("name", "said", "parts"),
    [
        ("llama", {"model_type": "gpt_oss"}, ("'gpt_oss'", "has attention sinks")),
        ("bert", {"is_decoder": True}, ("is_decoder = True", "not supported")),
        ("gpt2", {"add_cross_attention": True}, ("add_cross", "True", "no second")),
        ("llama", {"rope_scaling": SCALED}, ("rope_scaling", "'longrope'", "yarn")),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}},
            ("full_attention in rope_parameters", "'dynamic'", "llama3, yarn"),
        ),
        ("modernbert", {"rope_parameters": "yarn"}, ("'yarn'; expected an object",)),
    ],
)
def test_what_no_tensor_could_mend_is_refused_by_the_configuration(
    name, said, parts, tmp_path
):
    folder = copied(name, tmp_path, {}, **said)
    assert_says(refusal(folder), *parts)
    (folder / WEIGHTS).unlink()
    assert_says(refusal(folder), *parts)


BYTES = [
    (lambda old: b"", "too small"),
    (lambda old: old[:100], "header"),
    (lambda old: old[: len(old) // 2], "not fully covered"),
    (lambda old: old + b"\0", "not fully covered"),
    (lambda old: struct.pack("<Q", 2**32) + old[8:], "too large"),  # header of 4 GiB
]


@pytest.mark.parametrize(("change", "said"), BYTES)
@pytest.mark.parametrize("file", [WEIGHTS, "two.safetensors"])
def test_a_file_that_is_not_whole_is_named(change, said, file, tmp_path):
    folder = copied("bert", tmp_path)
    if file != WEIGHTS:
        sharded(folder)
    (folder / file).write_bytes(change((folder / file).read_bytes()))
    assert_says(refusal(folder), file, "not a complete", said, "fetch")


CONFIGS = [
    (b'{"model_type": "bert', "is not JSON"),
    (b"\xff\xfe", "is not JSON"),
    (b"[" * 100000, "is not JSON"),
    (b"[1]", "holds [1]; expected an object"),
]


@pytest.mark.parametrize(("content", "said"), CONFIGS)
@pytest.mark.parametrize("file", ["config.json", INDEX])
def test_a_json_file_that_is_none_is_named(content, said, file, tmp_path):
    folder = copied("bert", tmp_path)
    sharded(folder)
    (folder / file).write_bytes(content)
    assert_says(refusal(folder), file, said, "fetch")


def test_what_is_not_there_is_named(tmp_path):
    assert_says(refusal(tmp_path / "nowhere"), "nowhere", "no folder", "config.json")
    folder = copied("bert", tmp_path)
    (folder / "config.json").unlink()
    assert_says(refusal(folder), "no config.json, but model.saf", "expected")
    (folder / "config.json").mkdir()
    assert_says(refusal(folder), "config.json", "is a folder")


NAMES = ["config.json", WEIGHTS, INDEX, "vocab.txt", "tokenizer.json", "modules.json"]
NAMES += ["tokenizer_config.json"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["pipe", "device", "dangling", "looping"])
def test_what_stands_in_the_place_of_a_file_is_called_what_it_is(name, kind, tmp_path):
    folder = copied("bert", tmp_path)
    if name == INDEX:
        (folder / WEIGHTS).unlink()
    if name == "tokenizer_config.json":
        (folder / "vocab.txt").write_text("\n".join("[PAD] [UNK] a b".split()))
    path = folder / name
    path.unlink(missing_ok=True)
    links = {"device": "/dev/null", "dangling": "nowhere", "looping": path}
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(links[kind])
    line = refusal(folder)
    said = {"dangling": "does not exist", "looping": "leads back to itself"}
    assert_says(line, repr(str(path)), said.get(kind, f"is a {kind}"))


def test_a_folder_without_weights_says_which_files_are_expected(tmp_path):
    folder = copied("bert", tmp_path)
    (folder / WEIGHTS).unlink()
    assert_says(refusal(folder), WEIGHTS, INDEX, "pytorch_model.bin", "but config.json")


FILE = "two.safetensors"
LISTED = {
    "an absent file": ({QUERY: "three.safetensors"}, ("three.safetensors", "no such")),
    "another's tensor": ({"bert.other": FILE}, (FILE, "bert.other", "does not")),
    "a path above": ({QUERY: "../two.safetensors"}, ("../two.safetensors", "no such")),
    "no name": ({QUERY: 3}, ("weight_map", "expected the file of every tensor")),
}


@pytest.mark.parametrize("name", LISTED)
def test_an_index_that_names_what_is_not_there_is_refused(name, tmp_path):
    folder = copied("bert", tmp_path)
    listed = sharded(folder)
    save_file(weights_of("bert"), tmp_path / FILE)  # a path leads to it
    changed, said = LISTED[name]
    (folder / INDEX).write_text(json.dumps({"weight_map": listed | changed}))
    assert_says(refusal(folder), INDEX, *said)


def test_a_file_of_another_library_says_how_to_convert_it(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    for where in (tmp_path, path):
        assert_says(refusal(where), "GGUF is not read", "gguf_file=NAME", "save_pretr")


def test_two_words_on_positions_that_agree_are_one(tmp_path):
    older = {"type": "linear", "factor": 2, "rope_theta": None}
    twice = {"rope_parameters": LINEAR, "rope_scaling": older, "rope_theta": 10000}
    once = {"rope_parameters": LINEAR | {"rope_theta": 1e4}}
    assert_one_model("llama", tmp_path, (None, twice), (None, once))


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_becomes_float32_and_one_line_says_so(kind, tmp_path):
    held = {name: x.astype(kind) for name, x in weights_of("bert").items()}
    folder = copied("bert", tmp_path, held)
    with pytest.warns(UserWarning, match="the model is float32") as said:
        model = jm.from_pretrained(folder)
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    assert model.dtype == np.float32
    stored = held["bert.embeddings.word_embeddings.weight"].astype(np.float32)
    np.testing.assert_array_equal(model.embedding, stored)


def test_a_head_that_is_not_there_is_named(tmp_path):
    folder = copied("bert", tmp_path)
    assert_says(refusal(folder, head="causal_lm"), "causal_lm", "masked_lm, pooler")
    line = refusal(folder, head="classifier")
    assert_says(line, "head = 'classifier'", "bert.pooler.dense.weight")
    assert_says(line, "the names of heads here are none, masked_lm, pooler")
