"""A model file means one model, bit by bit, and a bad file is refused by name."""

import copy
import dataclasses
import functools
import json
import os
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import jax_models as jm
from jax_models.format.build import build_model
from tests.architecture import small_model
from tests.bounds.influence.expect import refused
from tests.written import written

SHAPE = {"num_layers": 2, "num_heads": 2, "d_ff": 3, "vocab_size": 3}


draw = functools.partial(small_model, **SHAPE, dtype="float64")


def mixed():
    """What may differ between layers, differs."""
    one = draw(weighting=["average_hard", "softmax"], tie_resolution=1e-6)
    other = draw(
        num_heads=1,
        d_ff=5,
        mask="strict_past",
        score="additive",
        combine="concat",
        biases=False,
        temperature=jm.InverseLogTemperature(jnp.float64(0.3)),
    )
    last = draw(weighting="rightmost_hard", tie_resolution=1e-7)
    layers = (*one.layers, *other.layers, last.layers[0])
    return dataclasses.replace(one, layers=layers)


TERMS = (
    jm.PowerTerm(0, 0.1, 1, -1, offset=0),
    jm.PowerTerm(1, alternating=True),
    jm.ResidueTerm(3, 5, (0, 2), -1),
)
MODELS = {
    "plain": draw,
    "float32": lambda: draw(dtype="float32", temperature=jm.ConstantTemperature(0.1)),
    "no layers": lambda: draw(num_layers=0),
    "mixed layers": mixed,
    "hard": lambda: draw(weighting=["leftmost_hard", "average_hard"], mask="past"),
    "pre": lambda: draw(
        layer_norm="pre", layer_norm_epsilon=0.1 + 0.2, final_norm=True
    ),
    "post": lambda: draw(layer_norm="post", activation="gelu", score="additive"),
    "concat": lambda: draw(combine="concat", mask="strict_future", score="dot_product"),
    "no biases": lambda: draw(biases=False, position=None),
    "table": lambda: draw(position="table", max_length=7),
    "sinusoidal": lambda: draw(position=jm.Sinusoidal(3, 0.1)),
    "coordinates": lambda: draw(position=jm.Coordinates(TERMS)),
    "constant": lambda: draw(temperature=jm.ConstantTemperature(jnp.float64(1 / 3))),
    "power": lambda: draw(temperature=jm.PowerTemperature(0.1, -1 / 3)),
    "of position": lambda: draw(
        temperature=jm.PowerTemperature(2, 0.5, "position"), mask="future"
    ),
    "readout": lambda: dataclasses.replace(
        draw(num_classes=5), accept=jm.Accept(4, 0.1)
    ),
    "readout without bias": lambda: dataclasses.replace(
        draw(), readout=jm.Readout(jnp.ones((2, 4)))
    ),
    "symbols": lambda: dataclasses.replace(
        draw(), vocabulary=("a", "β", "$"), substitutable=(0, 2)
    ),
}


@functools.cache
def model_of(name) -> jm.Transformer:
    return MODELS[name]()


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(a, one.dtype).tobytes() == np.asarray(b, one.dtype).tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_a_file_is_read_back_bit_by_bit(name, tmp_path):
    path = tmp_path / "model.safetensors"
    jm.save(model_of(name), path)
    model = jm.load(path)
    assert_same(model_of(name), model)
    assert model.dtype == model_of(name).dtype
    assert path.read_bytes() == jm.model_bytes(model) == jm.model_bytes(model_of(name))


@pytest.mark.parametrize("name", ["layer_norm", "activation"])
def test_what_the_format_holds_once_may_not_differ_between_layers(name, tmp_path):
    other = draw(**{name: "pre" if name == "layer_norm" else "gelu"})
    model = draw()
    model = dataclasses.replace(model, layers=(model.layers[0], other.layers[0]))
    with refused(name):
        jm.save(model, tmp_path / "model.safetensors")
    assert not os.listdir(tmp_path)


REMOVED = object()
QUERY = "layers.1.attention.query"


def tensor(name, to):
    """Changes one tensor: an array, or a function of it; None removes it."""
    return ("tensors", name, to)


def setting(path, value):
    return ("config", path.split(), value)


def temperature(**said):
    power = {"kind": "power", "scale": 1, "exponent": 1}
    return setting("layers 0 temperature", said if "kind" in said else power | said)


def position(**term):
    term = {"coordinate": 0, **term}
    return setting("position", {"kind": "coordinates", "terms": [term]})


def where_infinite(t):
    return np.where(t == t[1, 1, 2], np.inf, t)


BAD = [
    # Tensors.
    (tensor("embedding", None), "'embedding' is missing"),
    (tensor(QUERY, None), f"'{QUERY}' is missing.*4"),
    (tensor("layers.0.ffn.b3", np.zeros(4)), "unexpected.*layers.0.ffn.b3"),
    (tensor("final_norm.bias", np.ones(4)), "'final_norm.scale' is missing"),
    (tensor("layers.0.attention.score_vector", np.ones((2, 2))), "unexpected.*score_v"),
    (tensor(QUERY, lambda t: t[0]), rf"'{QUERY}'.*\(2, 4\)"),
    (tensor("layers.1.attention.key", lambda t: t[:1]), "key'.*expected.*2, 2, 4"),
    (tensor("position", np.ones((5, 3))), r"'position'.*\(5, 3\)"),
    (tensor(QUERY, where_infinite), rf"'{QUERY}'.*inf.*\(1, 1, 2\)"),
    (tensor(QUERY, lambda t: t.astype("int64")), f"'{QUERY}'.*int64.*float32"),
    (tensor(QUERY, lambda t: t.astype("float32")), "mix.*float32.*float64"),
    # Keywords and unknown keys.
    (setting("format", "attention-bounds/3"), "attention-bounds/3.*/1.*bounds/2"),
    (setting("format", REMOVED), "format = None"),
    (setting("heads", 2), "unknown key 'heads'"),
    (setting("layers 1 maks", "none"), r"layers\[1\].*unknown key 'maks'"),
    (setting("layers", REMOVED), "layers = None"),
    (setting("layers 0", "softmax"), r"layers\[0\] is str"),
    (setting("layers 0 mask", "causal"), r"layers\[0\].mask = 'causal'.*future"),
    (setting("layer_norm", "pre"), "'layers.0.norm1.scale' is missing"),
    (setting("layer_norm_epsilon", 10**400), "layer_norm_epsilon"),
    (setting("combine", "concat"), "ffn.w1'.*8"),
    (setting("layers 0 tie_resolution", "x"), "tie_resolution = 'x'"),
    # Temperatures.
    (temperature(kind="constant", value=0), "temperature.value = 0.*positive"),
    (temperature(scale=float("nan")), "temperature.scale = nan"),
    (temperature(of="row"), "of = 'row'"),
    (temperature(of="position"), "needs a future mask.*'none'"),
    # Positions.
    (setting("position", {"kind": "rotary"}), "position.kind = 'rotary'"),
    (setting("position", {"kind": "coordinates"}), "position.terms = None"),
    (position(power=1), r"terms\[0\].*unknown key 'power'"),
    (position(coordinate=-1), "coordinate = -1"),
    (position(modulus=0, residues=[]), "modulus = 0"),
    (position(modulus=2), "residues = None"),
    # Symbols and acceptance.
    (setting("vocabulary", ["a", "b"]), "vocabulary has 2.*3"),
    (setting("substitutable", [0, 3]), "substitutable lists 3.*0 to 2"),
    (setting("substitutable", []), r"substitutable = \[\]; list symbols"),
    (setting("substitutable", [2, 0, 2]), "substitutable lists 2 2 times"),
    (setting("special", [1]), "special = .*'attention-bounds/1' does not have"),
    (setting("accept", {"class": 0, "threshold": 0}), "0 classes"),
    (setting("accept", {"class": 0}), "accept.threshold = None"),
]


@functools.cache
def whole():
    return written(draw(position=None))


def damaged(kind, at: Any, to: Any):
    """The config and tensors of a good file after one change."""
    config, tensors = copy.deepcopy(whole())
    place: Any = config
    if kind == "tensors":
        changed: Any = to(tensors[at]) if callable(to) else to
        tensors[at] = changed
        return config, {name: t for name, t in tensors.items() if t is not None}
    *path, last = (int(x) if x.isdecimal() else x for x in at)
    for part in path:
        place = place[part]
    place[last] = to
    if to is REMOVED:
        del place[last]
    return config, tensors


def name_case(part):
    """The damage without the addresses of functions: the same in every process."""
    return re.sub(r" at 0x\w+", "", str(part))[:60]


@pytest.mark.parametrize(("damage", "message"), BAD, ids=name_case)
def test_a_bad_file_is_refused_by_name(damage, message, tmp_path):
    config, tensors = damaged(*damage)
    path = tmp_path / "model.safetensors"
    metadata = {"config": json.dumps(config)}
    safetensors.numpy.save_file(tensors, path, metadata=metadata)
    refused_file(path, message)


def test_a_formula_and_a_table_exclude_each_other():
    config, tensors = written(draw(position="table"))
    config["position"] = {"kind": "sinusoidal"}
    with refused(r"'position'.*formula"):
        build_model(config, tensors)


def refused_file(path, message):
    with pytest.raises(jm.InputError, match=message) as caught:
        jm.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a complete safetensors file"),
        (lambda data: data[:-1], "not a complete safetensors file"),
        (lambda data: data + b"\0", "not a complete safetensors file"),
        (lambda data: data.replace(b"{\\", b"[\\", 1), "config is not JSON"),
    ],
)
def test_damaged_bytes_are_refused(damage, message, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(jm.model_bytes(model_of("plain"))))
    refused_file(path, message)


def test_a_gguf_file_is_to_be_converted(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(99))
    with refused("GGUF is not read; convert it where"):
        jm.load(tmp_path / "model.gguf")


def test_a_file_without_a_config_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    _, tensors = written(model_of("plain"))
    for metadata in (None, {"format": "pt"}):
        safetensors.numpy.save_file(tensors, path, metadata=metadata)
        with refused("no 'config'"):
            jm.load(path)
    safetensors.numpy.save_file(tensors, path, metadata={"config": '"plain"'})
    with refused("config is str"):
        jm.load(path)


@pytest.mark.parametrize("name", ["missing.safetensors", ""])
def test_a_missing_file_is_refused(name, tmp_path):
    with refused(r"does not exist|is a folder"):
        jm.load(tmp_path / name)


def test_float64_without_x64_is_refused_with_the_remedy(tmp_path):
    for name in ("plain", "float32"):
        jm.save(model_of(name), tmp_path / name)
    with jax.enable_x64(False):
        assert jm.load(tmp_path / "float32").dtype == np.float32
        for call in (
            lambda: jm.load(tmp_path / "plain"),
            lambda: draw(num_layers=0),
            lambda: jm.apply(model_of("plain"), [0, 1]),
        ):
            with refused(r"jax_enable_x64.*_X64=1"):
                call()
