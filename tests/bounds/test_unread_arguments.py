"""Arguments that nothing would read are refused, whatever their value."""

import pytest

import bounds
import jax_models as jm
from tests.architecture import small_model
from tests.bounds.influence.expect import refused

MODEL = small_model(dtype="float64")
TOKENS = [0, 1, 0, 1]
BOUNDS = [(), ("certified",), ("estimate", "supremum")]
CALLS = [
    *(
        (
            "checkpoint",
            lambda way=way: bounds.compute_influence(
                MODEL, TOKENS, method=way, run=bounds.Run(checkpoint="b.npz")
            ),
        )
        for way in ("exhaustive", "incremental", "partial")
    ),
    *(
        (
            "extend_to",
            lambda beside=beside: bounds.bound_curve(
                MODEL, [3], bounds=beside, extend_to=10**6
            ),
        )
        for beside in BOUNDS
    ),
    *(
        ("num_symbols", lambda name=name: jm.get_language(name, num_symbols=3))
        for name in ("parity", "dyck2", "ones", "anbn")
    ),
    ("tie_resolution", lambda: jm.make_weighting("softmax", tie_resolution=0.5)),
    ("tie_resolution", lambda: small_model(tie_resolution=0.5)),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_an_argument_without_effect_is_refused_by_name(name, call):
    with refused(f"^{name} = .* has no effect: "):
        call()


def test_a_resolution_is_of_models_with_hard_layers_alone():
    two = {"num_layers": 2, "weighting": ["softmax", "average_hard"]}
    mixed = small_model(**two, dtype="float64", tie_resolution=0.5)
    assert vars(mixed.layers[1].attention.weighting)["tie_resolution"] == 0.5
    soft = jm.with_weighting(mixed, "softmax")
    assert jm.apply(soft, TOKENS).shape == (4, 4)
