"""Settings, tensors and poolings that change the function are read as their writers do."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from jax_models.format.pretrained.families.albert import group_of
from jax_models.model.pytree import in_bytes
from tests.bounds.influence.expect import refused
from tests.jax_models.format.pretrained.folders import (
    FIXTURES,
    assert_is_plain,
    assert_one_model,
    assert_says,
    copied,
    refusal,
    weights_of,
)

TOKENS = np.arange(2, 14)  # As many as the plain pass takes.


def read(name, place, tensors=None, **said):
    return jm.from_pretrained(copied(name, place, tensors, **said), dtype="float64")


def windows(model):
    return [layer.attention.window for layer in model.layers]


SLIDING = {"use_sliding_window": True, "sliding_window": 3}
KINDS = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("mistral", {"sliding_window": None}, [None, None]),
        ("mistral", {"sliding_window": ...}, [4096, 4096]),
        ("llama", SLIDING, [None, None]),
        ("qwen2", SLIDING | {"max_window_layers": 1, "layer_types": ...}, [None, 3]),
        ("qwen2", SLIDING | {"layer_types": KINDS}, [3, None]),
    ],
)
def test_those_layers_slide_that_the_family_says(name, said, expected, tmp_path):
    model = read(name, tmp_path, **said)
    assert windows(model) == expected
    if len(set(expected)) > 1:
        assert_is_plain(model)


OLDER = {
    "gpt_neox": {"rotary_pct": 0.5, "rotary_emb_base": 100},
    "modernbert": {
        "layer_types": ...,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
    },
    "qwen3": {"rope_theta": 10000.0},
}


@pytest.mark.parametrize("name", OLDER)
def test_older_names_of_settings_mean_the_same(name, tmp_path):
    said = {"rope_parameters": ..., **OLDER[name]}
    assert_one_model(name, tmp_path, (None, {}), (None, said))


def test_a_part_of_each_head_is_turned_by_default(tmp_path):
    held = weights_of("gpt_neox")
    model = read("gpt_neox", tmp_path, held, rope_parameters=...)
    rotary = model.layers[0].attention.rotary
    assert (rotary.dims, rotary.theta) == (4, 10000.0)


def test_yarn_has_the_factor_that_is_said(tmp_path):
    """Scores by the square of it: queries and keys both have it."""
    rope = {"rope_type": "yarn", "factor": 4.0, "attention_factor": 2.0}
    layer = read("qwen3_yarn", tmp_path, rope_parameters=rope).layers[0]
    assert layer.attention.temperature == jm.ConstantTemperature(0.25)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2"])
def test_padding_that_is_not_mentioned_is_the_familys(name, tmp_path):
    model = read(name, tmp_path, pad_token_id=...)
    expected = {"bert": {0}, "roberta": {1}, "gpt2": set()}[name]
    assert set(range(20)) - set(model.substitutable) == expected


@pytest.mark.parametrize(("name", "key"), [("esm", 1e-12), ("gpt2", 1e-5)])
def test_a_roundoff_that_is_not_mentioned_is_the_familys(name, key, tmp_path):
    model = read(name, tmp_path, layer_norm_eps=..., layer_norm_epsilon=...)
    norms = [x for layer in model.layers for x in (layer.norm1, layer.norm2)]
    assert {norm.epsilon for norm in [*norms, model.final_norm]} == {key}


def test_groups_of_albert_follow_the_rounding_of_transformers():
    assert [group_of(place, 4, 2) for place in range(4)] == [0, 0, 1, 1]
    assert group_of(9, 18, 14) == 6 != 9 * 14 // 18


EMBEDDING = "bert.embeddings.word_embeddings.weight"


def test_a_bias_of_the_last_map_may_stand_under_the_decoders_name(tmp_path):
    other = weights_of("bert")
    other["cls.predictions.decoder.bias"] = other.pop("cls.predictions.bias")
    assert_one_model("bert", tmp_path, (None, {}), (other, {}))


def test_a_decoder_of_its_own_has_a_bias_of_its_own(tmp_path):
    held, bias = weights_of("bert"), np.arange(20, dtype=np.float32)
    more = {"cls.predictions.decoder.weight": held[EMBEDDING].copy()}
    more["cls.predictions.decoder.bias"] = held["cls.predictions.bias"] + bias
    logits = np.asarray(jm.apply_logits(read("bert", tmp_path), TOKENS))
    (tmp_path / "own").mkdir()
    model = read("bert", tmp_path / "own", held | more, tie_word_embeddings=False)
    found = jm.apply_logits(model, TOKENS)
    np.testing.assert_allclose(found, logits + bias, atol=1e-5)


@pytest.mark.parametrize("tied", [EMBEDDING, "cls.predictions.bias"])
def test_a_decoder_that_differs_from_what_it_is_tied_to_is_refused(tied, tmp_path):
    held = weights_of("bert")
    name = f"cls.predictions.decoder.{tied.rpartition('.')[2]}"
    (tmp_path / "same").mkdir()
    assert read("bert", tmp_path / "same", held | {name: held[tied]}).classes == 20
    with refused(rf"{name}.+differ"):
        read("bert", tmp_path, held | {name: held[tied] + np.float32(1e-3)})


def test_electras_discriminator_is_one_number_of_every_row(tmp_path):
    held = {x: t for x, t in weights_of("electra").items() if "generator" not in x}
    draws, source = np.random.default_rng(0), "discriminator_predictions.dense"
    shapes = ((16, 16), 16, (1, 16), 1)
    w, b, v, c = (draws.normal(size=shape).astype(np.float32) for shape in shapes)
    held |= {f"{source}.weight": w, f"{source}.bias": b}
    held |= {f"{source}_prediction.weight": v, f"{source}_prediction.bias": c}
    said = {"architectures": ["ElectraForPreTraining"], "hidden_act": "relu"}
    model = read("electra", tmp_path, held, **said)
    assert_is_plain(model)
    rows = np.asarray(jm.apply(model, TOKENS))
    expected = np.maximum(rows @ w.T + b, 0) @ v.T + c
    np.testing.assert_allclose(jm.apply_logits(model, TOKENS), expected, rtol=1e-12)


ROUNDED = [1.0, 0.05, 0.0025, 0.003]
# Final activations of the first row's first entries, by transformers 5.23 in float64.
REFERENCE = [-1.5305200, 0.5099565, -0.7683567, 0.2952046]


def test_rotary_frequencies_that_esm_stores_are_used(tmp_path):
    held = {x: t for x, t in weights_of("esm").items() if "inv_freq" not in x}
    name = "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq"
    held[name] = np.array(ROUNDED, np.float32)
    model = read("esm", tmp_path, held)
    rows = jm.apply(model, jnp.array([4, 7, 9, 5, 6, 8, 10, 11]))
    np.testing.assert_allclose(rows[0, :4], REFERENCE, rtol=1e-5)
    jm.save(model, tmp_path / "model.safetensors")
    assert in_bytes(jm.load(tmp_path / "model.safetensors")) == in_bytes(model)


def test_rotary_frequencies_that_are_thetas_are_not_listed(tmp_path):
    assert read("esm", tmp_path).layers[0].attention.rotary.scaling is None


MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")


def modules(*kinds):
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    return [
        {"path": paths.get(x, x), "type": f"sentence_transformers.models.{x}"}
        for x in kinds
    ]


POOLED = modules("Transformer", "Pooling")
NORMALISED = modules("Transformer", "Pooling", "Normalize")


@pytest.fixture
def write(tmp_path):
    """Writes a folder of BERT with modules and modes; returns it."""
    folder = tmp_path / "folder"
    shutil.copytree(FIXTURES / "bert", folder)

    def written(listed, *on, width=16):
        if listed is not None:
            (folder / "modules.json").write_text(json.dumps(listed))
        if on:
            (folder / "1_Pooling").mkdir()
            modes = {f"pooling_mode_{mode}": mode in on for mode in MODES}
            asked = {"word_embedding_dimension": width, "include_prompt": True} | modes
            (folder / "1_Pooling" / "config.json").write_text(json.dumps(asked))
        return folder

    return written


@pytest.mark.parametrize(
    ("listed", "on", "expected"),
    [
        (POOLED, ["mean_tokens"], jm.Pooling()),
        (POOLED, ["cls_token"], jm.Pooling("first")),
        (NORMALISED, ["lasttoken"], jm.Pooling("last", True)),
        (None, ["mean_tokens"], jm.Pooling()),
        (modules("Transformer"), [], None),
        (None, [], None),
    ],
)
def test_the_pooling_is_the_folders(write, listed, on, expected):
    assert jm.from_pretrained(write(listed, *on)).pooling == expected


def test_influences_on_it_are_those_of_the_pooled_rows(write):
    model = jm.from_pretrained(write(NORMALISED, "mean_tokens"), dtype="float64")
    tokens = np.arange(5, 11)

    def pooled(x):
        mean = np.asarray(jm.apply(model, x)).mean(axis=0)
        return mean / np.linalg.norm(mean)

    found = bounds.compute_influence(model, tokens, target="pooled", symbols=[7, 3])
    for i, old in enumerate(tokens):
        for symbol in {7, 3} - {int(old)}:
            changed = tokens.copy()
            changed[i] = symbol
            moved = np.linalg.norm(pooled(changed) - pooled(tokens))
            assert moved > 1e-3
            assert found.lower[i, symbol] - 1e-14 <= moved
            assert moved <= found.upper[i, symbol] + 1e-14


MEAN = ["mean_tokens"]
WIDTH = "word_embedding_dimension in "


@pytest.mark.parametrize(
    ("listed", "on", "width", "said"),
    [
        (POOLED, ["max_tokens"], 16, ["pooling_mode_max_tokens"]),
        (None, [*MEAN, "cls_token"], 16, ["pooling_mode_cls_token and pooling_mode"]),
        (POOLED, [], 16, ["1_Pooling' has no file config.json"]),
        (modules("Transformer", "Pooling", "Dense"), MEAN, 16, ["Pooling, Dense"]),
        (modules("Pooling", "Transformer"), MEAN, 16, ["lists Pooling"]),
        ({"a": 1}, MEAN, 16, ["expected modules"]),
        *(
            (None, MEAN, width, [WIDTH, f"is {width!r}, and the model's rows have 16"])
            for width in (8, "16", None)
        ),
    ],
)
def test_a_pooling_that_is_not_read_is_one_line(write, listed, on, width, said):
    folder = write(listed, *on, width=width)
    assert_says(refusal(lambda: jm.from_pretrained(folder)), *said)
