"""The reference forward pass reads every keyword and tensor, in both arithmetics."""

import copy
import json
import math

import numpy as np
import pytest
import safetensors.numpy

from benchmarks import reference

LN3 = math.log(3.0)


def random_model(seed, layer_norm, **settings):
    """Two layers, two heads, width 4, every optional tensor present."""
    rng = np.random.default_rng(seed)
    layer = {
        "weighting": "softmax",
        "mask": "future",
        "score": "additive",
        "temperature": {"kind": "inverse_log", "scale": 0.5},
    }
    config = {
        "format": "attention-bounds/1",
        "layer_norm": layer_norm,
        "layer_norm_epsilon": 0.1,
        "activation": "gelu",
        "layers": [copy.deepcopy(layer), copy.deepcopy(layer)],
        **settings,
    }
    shapes = {"embedding": (3, 4), "readout.weight": (2, 4), "readout.bias": (2,)}
    for number in range(2):
        name = f"layers.{number}"
        for part in ("query", "key", "value"):
            shapes[f"{name}.attention.{part}"] = (2, 3, 4)
            shapes[f"{name}.attention.{part}_bias"] = (2, 3)
        shapes[f"{name}.attention.score_vector"] = (2, 3)
        shapes[f"{name}.attention.output"] = (4, 6)
        shapes[f"{name}.attention.output_bias"] = (4,)
        shapes[f"{name}.ffn.w1"], shapes[f"{name}.ffn.b1"] = (5, 4), (5,)
        shapes[f"{name}.ffn.w2"], shapes[f"{name}.ffn.b2"] = (4, 5), (4,)
        for norm in ("norm1", "norm2"):
            if layer_norm != "none":
                shapes[f"{name}.{norm}.scale"] = shapes[f"{name}.{norm}.bias"] = (4,)
    shapes["final_norm.scale"] = shapes["final_norm.bias"] = (4,)
    return config, {
        name: 0.6 * rng.normal(size=shape) for name, shape in shapes.items()
    }


@pytest.mark.parametrize("layer_norm", ["none", "pre", "post"])
def test_fifty_digits_agree_with_float64(layer_norm):
    config, tensors = random_model(0, layer_norm)
    tokens = [0, 2, 1, 1, 0]
    exact = reference.forward(config, tensors, tokens, reference.multiprecision(50))
    plain = reference.forward(config, tensors, tokens)
    np.testing.assert_allclose(plain, exact.astype(np.float64), rtol=1e-12)
    # They are two computations, not one: the rounding of the second is visible.
    assert (plain != exact).any()


@pytest.mark.parametrize(
    "weighting", ["leftmost_hard", "rightmost_hard", "average_hard"]
)
def test_fifty_digits_choose_the_same_winners(weighting):
    config, tensors = random_model(1, "none")
    for layer in config["layers"]:
        layer.update(weighting=weighting, score="scaled_dot_product")
    tokens = [0, 2, 1, 1, 0, 2]
    exact = reference.influence(
        config, tensors, tokens, arithmetic=reference.multiprecision(30)
    )
    plain = reference.influence(config, tensors, tokens)
    np.testing.assert_allclose(plain, exact, rtol=1e-11, atol=1e-14)


# Every keyword and every tensor is read: the oracle that ignored one would agree with
# an engine that ignores it too.
@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("model", "activation", "relu"),
        ("model", "layer_norm", "post"),
        ("model", "layer_norm_epsilon", 0.2),
        ("model", "position", {"kind": "sinusoidal"}),
        ("layer", "weighting", "average_hard"),
        ("layer", "weighting", "leftmost_hard"),
        ("layer", "mask", "none"),
        ("layer", "mask", "past"),
        ("layer", "mask", "strict_future"),
        ("layer", "mask", "strict_past"),
        ("layer", "score", "dot_product"),
        ("layer", "score", "scaled_dot_product"),
        ("layer", "temperature", None),
        ("layer", "temperature", {"kind": "inverse_log", "scale": 0.6}),
        ("layer", "temperature", {"kind": "power", "scale": 0.5, "exponent": -1}),
        (
            "layer",
            "temperature",
            {"kind": "power", "scale": 0.5, "exponent": -1, "of": "position"},
        ),
    ],
)
def test_every_keyword_is_read(place, key, value):
    config, tensors = random_model(2, "pre")
    before = reference.forward(config, tensors, [0, 1, 1, 2])
    (config if place == "model" else config["layers"][1])[key] = value
    after = reference.forward(config, tensors, [0, 1, 1, 2])
    assert np.abs(after - before).max() > 1e-4


def test_every_tensor_is_read():
    config, tensors = random_model(3, "post")
    before = reference.logits(config, tensors, [0, 1, 1, 2])
    for name in tensors:
        # Not the whole tensor: a common scale of a normed row would go unseen.
        changed = {**tensors, name: tensors[name].copy()}
        changed[name].flat[0] += 0.5
        after = reference.logits(config, changed, [0, 1, 1, 2])
        assert np.abs(after - before).max() > 1e-8, name


def test_a_file_is_read_back_as_config_and_tensors(tmp_path):
    config, tensors = random_model(4, "none")
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"config": json.dumps(config)})
    found_config, found = reference.read_file(path)
    assert found_config == config
    assert set(found) == set(tensors)
    assert all((found[name] == tensors[name]).all() for name in tensors)
