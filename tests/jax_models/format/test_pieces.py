"""Pieces of attention in files of version 2: what they mean, and what is refused."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.format.build import build_model
from jax_models.format.config import decode_config
from jax_models.model.pytree import in_bytes
from jax_models.model.rows import RmsNorm
from tests.bounds.attention_pieces import PIECES, model_of
from tests.written import written

pytestmark = pytest.mark.usefixtures("quick_compilation")
pieces = pytest.mark.parametrize("piece", PIECES)


@pieces
def test_a_file_means_the_same_model(piece, tmp_path):
    model, path = model_of(piece), tmp_path / "model.safetensors"
    jm.save(model, path)
    assert in_bytes(jm.load(path)) == in_bytes(model)
    assert b"attention-bounds/2" in path.read_bytes()


@pieces
def test_version_1_does_not_have_it(piece):
    config, tensors = written(model_of(piece))
    with pytest.raises(jm.InputError, match="attention-bounds/1' does not have"):
        decode_config(config | {"format": "attention-bounds/1"}, tensors)


@pytest.mark.parametrize("window", [0, 2.5, "3"])
def test_a_bad_window_is_refused_by_name(window):
    config, tensors = written(model_of("window"))
    with pytest.raises(jm.InputError, match=r"window = .*; expected"):
        build_model(config | {"window": window}, tensors)


BAD_ROTARY = {
    "'dims'|dims = None": {},
    "rotary.dims = 3; expected an even number": {"dims": 3},
    "rotary.dims = 6; expected at most d_k = 4": {"dims": 6},
    "rotary.theta = 0": {"dims": 4, "theta": 0},
    "rotary.pairing = 'both'": {"dims": 4, "pairing": "both"},
    "rotary has an unknown key|'base'": {"dims": 4, "base": 10.0},
    "rotary.scaling.kind = 'yarn'": {"dims": 4, "scaling": {"kind": "yarn"}},
    "rotary.scaling.factor = None": {"dims": 4, "scaling": {"kind": "linear"}},
    "rotary.scaling.kind = 2": {"dims": 4, "scaling": 2},
    "frequencies lists 3; expected 2": {
        "dims": 4,
        "scaling": {"kind": "listed", "frequencies": [1, 0.5, 0.1]},
    },
    "rotary.scaling.frequencies = None": {"dims": 4, "scaling": {"kind": "listed"}},
    "expected less than high_frequency_factor": {
        "dims": 4,
        "scaling": {
            "kind": "llama3",
            "factor": 8,
            "low_frequency_factor": 4,
            "high_frequency_factor": 1,
            "original_length": 32,
        },
    },
}


@pytest.mark.parametrize("said", BAD_ROTARY)
def test_a_bad_rotary_is_refused_by_name(said):
    config, tensors = written(model_of("rotary"))
    with pytest.raises(jm.InputError, match=said):
        build_model(config | {"rotary": BAD_ROTARY[said]}, tensors)


def test_rotary_goes_with_dot_products_alone():
    with pytest.raises(jm.InputError, match="goes only with dot-product scores"):
        model_of("rotary", score="additive")


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ("distance_bias.kind = 'far'", {"kind": "far"}),
        ("'slope'", {"kind": "alibi", "slope": 2}),
        ("distance_bias.max_distance = 1", {"kind": "buckets", "max_distance": 1}),
        ("distance_bias.max_distance = 2; expected more than 2", {"max_distance": 2}),
        ("distance_bias.bidirectional = 1; expected", {"bidirectional": 1}),
    ],
)
def test_a_bad_bias_is_refused_by_name(said, entry):
    config, tensors = written(model_of("distance buckets"))
    entry = {"kind": "buckets", **entry}
    with pytest.raises(jm.InputError, match=said):
        build_model(config | {"distance_bias": entry}, tensors)


def altered(**parts):
    """The model of the window with something else in its attention."""
    model = model_of("window")
    layers = (
        dataclasses.replace(x, attention=dataclasses.replace(x.attention, **parts))
        for x in model.layers
    )
    return dataclasses.replace(model, layers=tuple(layers))


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("window = 0; expected", {"window": 0}),
        ("rotary = 4; expected Rotary", {"rotary": 4}),
        (
            r"has shape \(3,\); expected \(2,\)",
            {"distance_bias": jm.Alibi(jnp.ones(3))},
        ),
        (r"has shape \(8,\); expected \(4,\)", {"key_norm": RmsNorm(jnp.ones(8))}),
        (r"key' has shape \(\)", {"key": jnp.ones(())}),
    ],
)
def test_a_bad_piece_in_memory_is_refused_by_name(said, parts):
    with pytest.raises(jm.InputError, match=said):
        jm.model_bytes(altered(**parts))


def test_a_window_of_numpy_is_a_number():
    assert jm.model_bytes(altered(window=np.int64(3))) == jm.model_bytes(altered())


def test_an_odd_number_of_buckets_has_no_two_sides():
    config, tensors = written(model_of("distance buckets"))
    name = "layers.0.attention.distance_bias"
    tensors = tensors | {name: tensors[name][:, :7]}
    with pytest.raises(jm.InputError, match="has 7 buckets; expected an even number"):
        build_model(config, tensors)
