"""Random models: what key and shapes fix, and what reweighting leaves as it is."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.initialise import gaussian_numbers
from jax_models.model.relative import Alibi
from jax_models.model.reweight import with_dtype, with_temperature, with_weighting
from tests.architecture import with_architecture
from tests.bounds.influence.expect import refused

SHAPE = {"num_layers": 2, "num_heads": 2, "d_model": 8, "d_ff": 6, "vocab_size": 3}
KEY = jax.random.key(3)


def draw(key=KEY, **changed):
    return jm.random_transformer(key, **with_architecture(**{**SHAPE, **changed}))


def arrays(model):
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model)
    }


@pytest.mark.parametrize(
    "other",
    [
        {"weighting": ["average_hard", "softmax"]},
        {"mask": "past"},
        {"score": "dot_product"},
        {"activation": "gelu"},
        {"position": None},
        {"num_classes": 4},
        {"final_norm": True},
        {"layer_norm": "pre"},
        {"biases": False},
        {"score": "additive"},
    ],
    ids=str,
)
def test_the_weights_depend_on_the_key_and_the_shapes_only(other):
    one, two = arrays(draw()), arrays(draw(**other))
    common = set(one) & set(two)
    assert len(common) >= 15
    for name in common:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1,), (2, 3, 90), (2**14 + 1,)], ids=str)
def test_numbers_are_those_of_a_draw_of_their_shape(shape, dtype):
    drawn = gaussian_numbers(KEY, shape, dtype, 0.3)
    expected = jax.random.normal(KEY, shape, dtype) * 0.3
    # Two programs: their compiler may put the same operations in other instructions.
    np.testing.assert_allclose(drawn, expected, rtol=8 * np.finfo(dtype).eps)


def test_another_key_gives_other_weights():
    one, two = arrays(draw()), arrays(draw(jax.random.key(4)))
    assert all((one[name] != two[name]).any() for name in one)


def test_matrices_have_deviation_scale_over_root_fan_in():
    model = draw(d_model=128, d_ff=256, num_layers=1, scale=3.0, combine="concat")
    attention, block = model.layers[0].attention, model.layers[0].feed_forward
    for weight in (attention.query, attention.value, block.w1, block.w2):
        fan_in = 128 if weight.ndim == 3 else 256
        assert np.std(weight) == pytest.approx(3 / fan_in**0.5, rel=0.03)
    assert np.std(model.embedding) == pytest.approx(3, rel=0.1)


def test_training_starts_from_zero_biases_and_unit_norms():
    options = {"layer_norm": "post", "final_norm": True, "num_classes": 2}
    slopes = Alibi(jnp.array([0.5, 0.25]))
    options |= {"distance_bias": slopes, "query_key_norm": "rms_norm"}
    model = jm.init_transformer(KEY, **with_architecture(**SHAPE, **options))
    drawn = arrays(draw(**options))
    for name, leaf in arrays(model).items():
        if "norm" in name and name.endswith("scale"):
            assert (leaf == 1).all(), name
        elif name.endswith((".b1", ".b2", "bias")):
            assert (leaf == 0).all(), name
        elif name == ".embedding":
            np.testing.assert_allclose(leaf, drawn[name] / 8**0.5, rtol=1e-6)
        else:
            np.testing.assert_array_equal(leaf, drawn[name], err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_weight_has_the_float_type(dtype):
    options = {"score": "additive", "layer_norm": "pre", "position": "table"}
    model = jax.eval_shape(lambda: draw(dtype=dtype, num_classes=2, **options))
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype(dtype)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_heads": 3}, "num_heads = 3"),
        ({"d_model": 0}, "d_model = 0"),
        ({"num_layers": -1}, "num_layers = -1"),
        ({"weighting": "softmin"}, "softmin.*leftmost_hard"),
        ({"weighting": ["softmax"]}, "1 weightings"),
        ({"combine": "concat", "layer_norm": "pre"}, "concat"),
        ({"position": "rotary"}, "rotary"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(wrong, message):
    with refused(message):
        draw(**wrong)


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(jm.Architecture)]
)
def test_a_keyword_that_moved_names_its_new_place(name):
    place = re.escape(f"{name!r} since 0.2: it is architecture=jm.Architecture({name}=")
    with pytest.raises(TypeError, match=place):
        jm.init_transformer(KEY, **SHAPE, **{name: None})


def test_an_architecture_is_an_architecture():
    with refused(r"expected a jm.Architecture"):
        jm.random_transformer(KEY, **SHAPE, architecture={"gated": True})


@pytest.fixture
def model():
    return draw(dtype="float64")


@pytest.mark.parametrize("name", jm.WEIGHTINGS)
def test_reweighting_equals_drawing_with_that_weighting(model, name):
    drawn = draw(weighting=name, dtype="float64")
    assert jm.model_bytes(with_weighting(model, name)) == jm.model_bytes(drawn)


def test_the_arrays_are_shared(model):
    changed = with_temperature(
        with_weighting(model, "average_hard"), jm.InverseLogTemperature(1.0)
    )
    assert changed.embedding is model.embedding
    for new, old in zip(changed.layers, model.layers, strict=True):
        assert new.attention.key is old.attention.key
        assert new.attention.temperature == jm.InverseLogTemperature(1.0)


def test_a_tie_resolution_is_kept():
    model = draw(weighting="leftmost_hard", tie_resolution=0.25)
    changed = with_weighting(model, "average_hard")
    for layer in changed.layers:
        assert layer.attention.weighting == jm.AverageHardmax(0.25)


def test_a_float_type_rounds_each_weight_once(model):
    rounded, old = with_dtype(model, "float32"), arrays(model)
    for name, new in arrays(rounded).items():
        assert new.dtype == np.float32
        np.testing.assert_array_equal(new, old[name].astype(np.float32))
    wide = arrays(with_dtype(rounded, float)).values()
    assert all(leaf.dtype == np.float64 for leaf in wide)


@pytest.mark.parametrize("dtype", ["float16", jnp.bfloat16, "int32", "double trouble"])
def test_any_other_type_is_refused_by_name(model, dtype):
    with refused("; expected float32 or float64"):
        with_dtype(model, dtype)
