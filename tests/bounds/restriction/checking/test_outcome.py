"""Runs of the model beside an enclosed output: how far rounding may part them."""

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction.checker import check_runs
from bounds.restriction.checking.claim import FREE, Claim
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.tables import Refuted

RADIUS = 1e-6


@pytest.fixture(scope="module")
def model():
    """Without layers: the output is the embedding of the query's token."""
    shape = {"num_layers": 0, "num_heads": 1, "d_model": 4, "d_ff": 1, "vocab_size": 2}
    return jm.random_transformer(jax.random.key(0), **shape, dtype="float64")


def claim(output):
    return Claim(
        num_layers=0,
        heads=(),
        ties=(),
        masks=(),
        model_digest="",
        symbols=(0, 1),
        rho=(FREE, 0),
        query=1,
        mode="floating",
        layers=(),
        output=tuple(output.tolist()),
        pair=None,
        language=None,
        members=None,
        free=1,
        log2_misclassified=None,
    )


@pytest.mark.parametrize("off", [0.0, 0.9, 1.9, -1.9])
def test_a_run_may_be_two_radii_from_the_output(model, off):
    """Both are within one of the centre."""
    ran = np.asarray(jm.apply(model, np.array([0, 0], np.int32)))[1]
    found = Enclosure(ran, np.full(4, RADIUS))
    check_runs(model, found, claim(ran + off * RADIUS))


@pytest.mark.parametrize("off", [2.1, -2.1, 100.0, np.inf])
@pytest.mark.parametrize("coordinate", [0, 2])
def test_a_run_that_is_further_off_refutes_the_output(model, off, coordinate):
    ran = np.asarray(jm.apply(model, np.array([0, 0], np.int32)))[1]
    output = ran.copy()
    output[coordinate] += off * RADIUS
    with pytest.raises(Refuted, match=f"coordinate {coordinate} is"):
        check_runs(model, Enclosure(ran, np.full(4, RADIUS)), claim(output))
    # Exact numbers are equal or wrong.
    with pytest.raises(Refuted):
        check_runs(model, Enclosure.exactly(ran), claim(ran + 1e-12))
