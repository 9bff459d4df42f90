"""What the independent checker says of a certificate, and what a run may be off."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import checker, find_counterexample, find_restriction
from bounds.restriction.checker import check_certificate, check_runs
from bounds.restriction.checking.claim import decode_claim
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.tables import Refuted, embed_tables
from tests.architecture import with_attention
from tests.bounds.restriction.drawn_models import integer_model
from tests.bounds.restriction.enumerated import certified, changed

RADIUS = 1e-6


def test_accepts_a_mean_of_two():
    """Average-hard attention to scores that all tie, at two positions."""
    model = integer_model(0, weighting="average_hard")
    model = with_attention(model, lambda x: {"query": jnp.zeros_like(x.query)})
    _, certificate = certified(model, 0, length=2)
    found = check_certificate(model, changed(certificate, mode="exact"))
    assert found.accepted, found.reasons


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


def test_a_free_bit_of_the_output_refutes_it(claim):
    """A free position's embedding has two values; claimed is the one of bit 0."""
    model, position = integer_model(3), claim.rho.index(-1)
    tables = embed_tables(model, claim)
    output = tuple(tables.values[tables.rows(position)][0].centre)
    claimed = dataclasses.replace(claim, query=position, output=output)
    with pytest.raises(Refuted, match=rf"not constant: .* free bits \[{position}\]"):
        checker.check_output(model, tables, claimed)


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


@pytest.mark.parametrize("size", [16.0, 64.0])
def test_exact_scores_are_decided_however_far_their_cells_lie(size):
    """At 64 the scores, 4096, are 2^52 cells of 2^-40: a rounding would move them."""
    model = jm.random_transformer(
        jax.random.key(0),
        **{"num_layers": 1, "num_heads": 1, "d_model": 2, "d_ff": 2, "vocab_size": 2},
        **{"weighting": "average_hard", "mask": "none", "position": "none"},
        score="dot_product",
        dtype=jnp.float64,
        architecture=jm.Architecture(biases=False, tie_resolution=2.0**-40),
    )
    key = jnp.array([[[size, 0.0], [0.0, 0.0]]])
    value = jnp.array([[[0.0, 1.0], [0.0, 0.0]]])
    model = with_attention(
        dataclasses.replace(model, embedding=jnp.array([[1.0, 0.0], [1.0, 1.0]])),
        {"query": key, "key": key, "value": value, "output": jnp.eye(2)},
    )
    found = find_restriction(model, 4, method="greedy", attempts=1)
    checked = check_certificate(model, found.certificate)
    assert checked.accepted, checked.reasons
