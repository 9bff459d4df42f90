"""The independent checker accepts what enumeration certifies, of any hard attention."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import find_counterexample
from bounds.restriction.checker import check_certificate, check_runs
from bounds.restriction.checking.claim import decode_claim
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.tables import Refuted
from jax_models.model.mask import MASKS
from tests.architecture import with_attention
from tests.bounds.restriction.drawn_models import HARD, integer_model, real_model
from tests.bounds.restriction.enumerated import certified, changed, is_true

RADIUS = 1e-6

FEATURES = {
    "scaled": {"score": "scaled_dot_product"},
    "additive": {"score": "additive"},
    "pre-norm": {"layer_norm": "pre", "final_norm": True},
    "post-norm": {"layer_norm": "post"},
    "concat": {"combine": "concat"},
    "gelu": {"activation": "gelu"},
    "sinusoidal": {"position": "sinusoidal"},
    "no positions": {"position": None},
    "constant temperature": {"temperature": jm.ConstantTemperature(0.25)},
    "inverse log": {"temperature": jm.InverseLogTemperature(0.7)},
    "temperature of the position": {
        "temperature": jm.PowerTemperature(1.5, -0.5, "position"),
        "mask": "future",
    },
    "coarse cells": {"tie_resolution": 0.3},
}


# Every weighting and every mask at the quick run, every pair of them at the slow one.
QUICK = {
    ("leftmost_hard", "none"),
    ("rightmost_hard", "future"),
    ("average_hard", "strict_past"),
}


@pytest.mark.parametrize(
    ("weighting", "mask"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product(HARD, MASKS)
    ],
)
def test_accepts_what_is_true_of_integer_models(weighting, mask):
    # A mean of three is not dyadic: average-hard attention may round.
    mode = "floating" if weighting == "average_hard" else "exact"
    for seed in (3, 6):
        model = integer_model(seed, weighting=weighting, mask=mask)
        enumeration, certificate = certified(model, seed)
        found = check_certificate(model, changed(certificate, mode=mode))
        assert found.accepted, found.reasons
        assert is_true(enumeration, certificate)


def test_accepts_a_mean_of_two():
    """Average-hard attention to scores that all tie, at two positions."""
    model = integer_model(0, weighting="average_hard")
    model = with_attention(model, lambda x: {"query": jnp.zeros_like(x.query)})
    _, certificate = certified(model, 0, length=2)
    found = check_certificate(model, changed(certificate, mode="exact"))
    assert found.accepted, found.reasons


@pytest.mark.parametrize(
    "feature",
    [
        pytest.param(name, marks=() if name == "post-norm" else pytest.mark.slow)
        for name in FEATURES
    ],
)
def test_accepts_what_is_true_of_real_models(feature):
    for seed, weighting in enumerate(HARD):
        model = real_model(seed, weighting=weighting, **FEATURES[feature])
        enumeration, certificate = certified(model, seed)
        found = check_certificate(model, certificate)
        assert found.accepted, found.reasons
        assert is_true(enumeration, certificate)
        assert "rounding is enclosed" in found.reasons[1]


@pytest.mark.slow
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_accepts_what_is_true_at_other_depths(num_layers, num_heads):
    size = {"num_layers": num_layers, "num_heads": num_heads}
    for seed, weighting in itertools.product(range(4), HARD):
        model = integer_model(seed, weighting=weighting, **size)
        enumeration, certificate = certified(model, seed, length=6)
        found = check_certificate(model, certificate)
        assert found.accepted, found.reasons
        assert is_true(enumeration, certificate)


def test_says_what_an_accepted_certificate_shows():
    _, certificate = certified(integer_model(3), 3)
    found = check_certificate(integer_model(3), certificate)
    free = certificate["free"]
    assert found.reasons == (
        f"all 2^{free} completions have one final activation at position 4",
        "all arithmetic is exact",
        "the model gives one output to a member and a non-member of parity",
        f"at least 2^{free - 1} inputs are misclassified",
    )


def test_says_where_the_output_is_read_if_that_is_not_at_the_end():
    """This model computes PARITY of four bits, at its last position alone."""
    model = jm.build_preset("hard_parity", dtype="float64")
    found = find_counterexample(model, 4, "parity", query=0)
    shown = check_certificate(model, found.certificate).reasons
    assert shown[-2:] == (
        "the model, read at position 0, gives one output to a member and a non-member "
        "of parity",
        "at least 2^3 inputs are misclassified, read at position 0",
    )
    assert found.reasons[-1].startswith("the model accepts both of the pair, read at")


@pytest.fixture(scope="module")
def claim():
    return decode_claim(certified(integer_model(3), 3)[1])


def check_output(claim, off, radius):
    """Check runs of the claim's model against an output this far off it."""
    centre = np.array(claim.output)
    found = Enclosure(centre, np.full(len(centre), radius))
    claimed = dataclasses.replace(claim, output=tuple(centre + off))
    check_runs(integer_model(3), found, claimed)


@pytest.mark.parametrize("off", [0.0, 0.9, 1.9, -1.9])
def test_a_run_may_be_two_radii_from_the_output(claim, off):
    """Both are within one of the centre."""
    check_output(claim, off * RADIUS, RADIUS)


@pytest.mark.parametrize("off", [2.1, -2.1, 100.0, np.inf])
@pytest.mark.parametrize("coordinate", [0, 2])
def test_a_run_that_is_further_off_refutes_the_output(claim, off, coordinate):
    away = np.zeros(4)
    away[coordinate] = off * RADIUS
    with pytest.raises(Refuted, match=f"coordinate {coordinate} is"):
        check_output(claim, away, RADIUS)
    # Exact numbers are equal or wrong.
    with pytest.raises(Refuted):
        check_output(claim, 1e-12, 0.0)
