"""A model is checked wherever it enters, by one function, and a file reloads as it is."""

import dataclasses
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from jax_models.format import file as checkpoint
from jax_models.format.model_check import check_model
from tests.architecture import small_model
from tests.bounds.influence.expect import refused
from tests.bounds.test_calls import CALLS, SOURCE, TOKENS

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
BAD = [
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


@pytest.mark.parametrize(("path", "value", "complaint"), BAD)
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
