"""A model is checked wherever it enters; its file means one model, bit by bit."""

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

import bounds
import jax_models as jm
from jax_models.format import file as checkpoint
from jax_models.format.build import build_model
from jax_models.format.model_check import check_model
from tests.architecture import small_model
from tests.bounds.influence.expect import refused
from tests.bounds.test_calls import CALLS, SOURCE, TOKENS
from tests.written import written

SHAPE = {"num_layers": 2, "num_heads": 2, "d_ff": 3, "vocab_size": 3}


draw = functools.partial(small_model, **SHAPE, dtype="float64")


def replaced(model, path, value):
    """The model with another value of one field: names and indices, dot-separated."""
    name, _, rest = path.partition(".")
    if name.isdecimal():
        entries = list(model)
        entries[int(name)] = replaced(model[int(name)], rest, value)
        return tuple(entries)
    new = replaced(getattr(model, name), rest, value) if rest else value
    return dataclasses.replace(model, **{name: new})


ATTENTION = "layers.1.attention."
TEMPERATURE = ATTENTION + "temperature"
NAN, INF = float("nan"), float("inf")
# What no model may have: the field, its value, and what the message says.
CONSTANTS = [jm.ConstantTemperature(value) for value in (0, "1", True, jnp.ones(2))]
BAD_FIELDS = [
    *((TEMPERATURE, value, "temperature.value") for value in CONSTANTS),
    *((TEMPERATURE, value, "temperature") for value in (-1, "1")),
    (TEMPERATURE, jm.InverseLogTemperature(-1), "scale = -1.0"),
    (TEMPERATURE, jm.PowerTemperature(1, 1, "position"), "future mask"),
    (ATTENTION + "key", jnp.ones((2, 2, 5)), "expected \\(2, 2, 4\\)"),
    ("layers.0.feed_forward.b1", jnp.asarray([0, INF, 0]), "non-finite value inf"),
    ("layers.0.feed_forward", None, r"model.layers\[0\].feed_forward = None"),
    ("layers.0.norm1", jm.LayerNorm(jnp.ones(4), jnp.ones(4)), "unexpected tensors"),
    ("layers.0.combine", "concat", "combine|shape|unexpected"),
    ("layers", (None,), r"model.layers\[0\] = None"),
    ("embedding", jnp.ones((3, 4), jnp.int32), "is 'int32'"),
    ("position", "sinusoidal", "model.position = 'sinusoidal'"),
    ("accept", jm.Accept(0, 0.5), "accept.class = 0; the read-out has 0 classes"),
    ("vocabulary", ("a", "b", 3), r"model.vocabulary\[2\] = 3"),
    ("special", (2,), r"special = \[2\]; expected symbols .* neither substitutable"),
    ("substitutable", (0.5,), r"model.substitutable\[0\] = 0.5"),
]


@pytest.mark.parametrize(("path", "value", "complaint"), BAD_FIELDS)
def test_a_field_that_no_model_may_have_is_refused_in_one_line(path, value, complaint):
    bad = replaced(draw(), path, value)
    with refused(complaint):
        check_model(bad)


ENTRANCES = {
    **{
        function.__name__: lambda m, function=function, given=given: function(
            **{**given, "model": m}
        )
        for function, given in CALLS
        if "model" in given
    },
    "accepts": lambda m: jm.accepts(m, TOKENS),
    "model_bytes": jm.model_bytes,
    "save": lambda m: jm.save(m, "never.safetensors"),
    "train": lambda m: jm.train(m, SOURCE, jm.Training(8, 1), jax.random.key(0)),
    "scan": lambda m: bounds.scan(m, TOKENS),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_every_public_function_refuses_what_is_no_model(
    entrance, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = draw(num_classes=3)
    for weights in ("softmax", "leftmost_hard"):
        weighted = jm.with_weighting(model, weights)
        bad = replaced(weighted, "embedding", weighted.embedding.at[1, 2].set(jnp.nan))
        with refused(r"non-finite value nan at \(1, 2\)"):
            ENTRANCES[entrance](bad)
    temperature = replaced(model, TEMPERATURE, 0)
    with refused(r"temperature\.value = 0"):
        ENTRANCES[entrance](temperature)
    with refused(r"(model is|not of) a int|int is no network"):
        ENTRANCES[entrance](3)
    assert not os.listdir(tmp_path)


def test_every_public_function_of_a_model_stands_among_the_entrances():
    takes = {
        name
        for package in (bounds, jm)
        for name in package.__all__
        if next(iter(getattr(getattr(package, name), "__annotations__", {})), "")
        in ("model", "network")
        and not isinstance(getattr(package, name), type)
    }
    # The pure pass is what is traced.
    assert takes - {"forward"} == set(ENTRANCES)


@pytest.mark.parametrize("number", [0.5, 2, np.float32(0.25), np.array(0.125)])
def test_a_plain_number_is_a_constant_temperature(number):
    expected = jm.model_bytes(draw(temperature=jm.ConstantTemperature(float(number))))
    same = replaced(draw(), TEMPERATURE, number)
    same = replaced(same, "layers.0.attention.temperature", number)
    for model in (draw(temperature=number), jm.with_temperature(draw(), number), same):
        assert jm.model_bytes(model) == expected
    assert jm.model_bytes(draw()) != expected


def test_lists_and_numpy_arrays_become_what_a_model_holds():
    model = draw()
    given = dataclasses.replace(
        jax.tree.map(np.asarray, model),
        layers=list(jax.tree.map(np.asarray, model).layers),
        vocabulary=["a", "b", "c"],
        substitutable=np.array([0, 2]),
    )
    found = check_model(given)
    assert found.vocabulary == ("a", "b", "c")
    assert found.substitutable == (0, 2)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found))
    assert jax.tree.structure(found.layers) == jax.tree.structure(model.layers)
    assert check_model(model) is model


def test_an_array_that_is_changed_in_place_is_checked_again():
    table = np.ones((3, 4))
    model = dataclasses.replace(draw(), embedding=table)
    check_model(model)
    table[0, 0] = np.nan
    with refused("non-finite"):
        check_model(model)


def test_nothing_is_checked_under_tracing():
    bad = replaced(draw(), "embedding", jnp.full((3, 4), NAN))
    found = jax.jit(lambda model: jm.apply(model, jnp.asarray(TOKENS)))(bad)
    assert np.isnan(found).all()


@pytest.mark.parametrize("options", [{"scale": NAN}, {"temperature": -1}])
def test_a_random_model_is_one(options):
    with refused(next(iter(options))):
        draw(**options)


@pytest.mark.parametrize(
    "loss",
    [
        ("encode_config", lambda found: found | {"activation": "gelu"}),
        ("name_tensors", lambda found: found | {"embedding": -found["embedding"]}),
    ],
    ids=["config", "tensors"],
)
def test_a_file_that_reads_as_another_model_does_not_take_its_name(
    loss, tmp_path, monkeypatch
):
    """The errors are planted in what writes; what stood there stays."""
    path = tmp_path / "model.safetensors"
    jm.save(draw(), path)
    before = path.read_bytes()
    name, spoil = loss
    writes = getattr(checkpoint, name)
    monkeypatch.setattr(checkpoint, name, lambda *given: spoil(writes(*given)))
    with refused(f"{path}.* is not written"):
        jm.save(draw(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


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
