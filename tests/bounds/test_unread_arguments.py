"""Arguments that nothing would read are refused, whatever their value."""

import random

import pytest

import bounds
import jax_models as jm
from tests.architecture import small_model
from tests.bounds.influence.expect import refused

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = small_model(dtype="float64")
TOKENS, METHODS = [0, 1, 0, 1], ("exhaustive", "incremental", "partial")
LANGUAGES = ("parity", "dyck2", "ones", "anbn")


def influence(draw, **given):
    return bounds.compute_influence(MODEL, TOKENS, method=draw.choice(METHODS), **given)


def curve(draw, **given):
    beside = draw.choice([(), ("certified",), ("estimate", "supremum")])
    return bounds.bound_curve(MODEL, [3], bounds=beside, **given)


CALLS = {
    "checkpoint": (
        lambda draw, checkpoint: influence(draw, run=bounds.Run(checkpoint=checkpoint)),
        lambda draw: draw.choice(["a", "b.npz"]),
    ),
    "extend_to": (curve, lambda draw: draw.randint(1, 10**6)),
    "num_symbols": (
        lambda draw, **given: jm.get_language(draw.choice(LANGUAGES), **given),
        lambda draw: draw.randint(1, 99),
    ),
    "tie_resolution": (
        lambda draw, **given: jm.make_weighting("softmax", **given),
        lambda draw: draw.uniform(1e-9, 1),
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CALLS)
def test_an_argument_without_effect_is_refused_by_name(name, seed):
    call, value = CALLS[name]
    draw = random.Random(seed)
    with refused(f"^{name} = .* has no effect: "):
        call(draw, **{name: value(draw)})


def test_a_resolution_is_of_models_with_hard_layers_alone():
    with refused(r"tie_resolution = 0.5 has no effect"):
        small_model(tie_resolution=0.5)
    two = {"num_layers": 2, "weighting": ["softmax", "average_hard"]}
    mixed = small_model(**two, dtype="float64", tie_resolution=0.5)
    assert vars(mixed.layers[1].attention.weighting)["tie_resolution"] == 0.5
    soft = jm.with_weighting(mixed, "softmax")
    assert jm.apply(soft, TOKENS).shape == (4, 4)
