"""A layer in several places is stored once, and a bad repetition is refused."""

import jax
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.format.build import build_model
from tests.written import written

pytestmark = pytest.mark.usefixtures("quick_compilation")
SHAPE = {"num_layers": 4, "num_heads": 2, "d_model": 4, "d_ff": 3, "vocab_size": 3}
MODEL = jm.random_transformer(
    jax.random.key(0),
    **SHAPE,
    dtype="float64",
    architecture=jm.Architecture(same_layers=(0, 1, 1, 0)),
)


def test_a_layer_in_several_places_is_stored_once(tmp_path):
    path = tmp_path / "model.safetensors"
    jm.save(MODEL, path)
    loaded = jm.load(path)
    assert path.read_bytes() == jm.model_bytes(loaded)
    one, two, three, four = loaded.layers
    assert one is four
    assert two is three
    assert one is not two
    assert not [x for x in written(MODEL)[1] if x.startswith(("layers.2", "layers.3"))]


def test_the_reference_reads_the_file_as_the_same_model():
    tokens = np.asarray([0, 2, 1, 1, 0])
    expected = reference.forward(*written(MODEL), tokens)
    np.testing.assert_allclose(jm.apply(MODEL, tokens), expected, 1e-11, 1e-11)


@pytest.mark.parametrize(
    ("same", "message"),
    [
        (3, r"layers\[3\].same_as = 3; expected an earlier layer"),
        (2, r"layers\[3\].same_as = 2.*has its own weights"),
        (-1, r"layers\[3\].same_as = -1"),
        ("0", r"layers\[3\].same_as = '0'"),
    ],
)
def test_a_layer_that_is_no_earlier_one_is_refused(same, message):
    config, tensors = written(MODEL)
    config["layers"][3] = {"same_as": same}
    with pytest.raises(jm.InputError, match=message):
        build_model(config, tensors)


def test_a_repeated_layer_says_nothing_else():
    config, tensors = written(MODEL)
    config["layers"][3]["mask"] = "none"
    with pytest.raises(jm.InputError, match=r"layers\[3\].*unknown key 'mask'"):
        build_model(config, tensors)


@pytest.mark.parametrize(
    ("same", "message"),
    [((0, 0, 1, 0), "earlier one"), ((0,), "num_layers = 4"), (0, "same_layers = 0")],
)
def test_places_that_are_none_are_refused(same, message):
    with pytest.raises(jm.InputError, match=message):
        jm.random_transformer(
            jax.random.key(0), **SHAPE, architecture=jm.Architecture(same_layers=same)
        )


def test_one_layer_has_one_weighting():
    names = ("softmax", "average_hard", "softmax", "softmax")
    with pytest.raises(jm.InputError, match=r"weighting\[1\] = 'average_hard'"):
        jm.random_transformer(
            jax.random.key(0),
            **SHAPE,
            weighting=names,
            architecture=jm.Architecture(same_layers=(0, 0, 0, 0)),
        )
