"""A certificate is never below the exact influence, whatever the architecture."""

import numpy as np
import pytest

from bounds.certificate import certify_influence
from bounds.influence import compute_influence
from tests.bounds.certificate.models import (
    FACTORS,
    build,
    draw_tokens,
    widest_query,
)
from tests.bounds.influence.models import allowed
from tests.covering import cover

# Deep models compile longest; three layers are also among the short inputs below.
FEW = [
    pytest.param(case, marks=pytest.mark.slow) if case["num_layers"] > 2 else case
    for case in cover(FACTORS, 1, allowed)
]
MANY = cover(FACTORS, 2, allowed)


def name(case):
    return " ".join(str(value) for value in case.values())


def assert_dominates(model, tokens, query, target="activation"):
    """Both certificates hold every influence; the centred one of L <= 2 is exact."""
    question = {"query": query, "target": target, "include_query": True}
    exact = compute_influence(model, tokens, method="exhaustive", **question)
    centred = certify_influence(model, tokens, method="centred", **question)
    base = certify_influence(model, tokens, method="base", **question)
    substituted = ~np.isnan(exact.lower)
    for certificate in (centred, base):
        assert (np.isnan(certificate.upper) == ~substituted).all()
        assert (certificate.upper >= exact.lower)[substituted].all(), (
            certificate.method,
            np.nanmin(certificate.upper / exact.lower),
        )
        np.testing.assert_array_equal(
            certificate.position_upper[substituted.any(axis=1)],
            np.nanmax(certificate.upper[substituted.any(axis=1)], axis=1),
        )
    if len(model.layers) <= 2:
        # Two exact numbers: their distance is the rounding of both.
        slack = (centred.upper - exact.upper)[substituted]
        assert (slack <= 1e-8 * exact.upper[substituted]).all()


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("case", FEW, ids=name)
def test_certificates_dominate(case):
    n = 8
    query = widest_query(case["mask"], n)
    assert_dominates(build(case), draw_tokens(n), query, case["target"])


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("case", MANY, ids=name)
def test_certificates_dominate_in_every_pair_of_features(case):
    """25 draws of each of the architectures, more than 500 models in all."""
    n = 8
    for seed in range(25):
        tokens = draw_tokens(n, seed=seed)
        drawn = {**case, "scale": (case["scale"], 0.1, 0.5, 2.0)[seed % 4]}
        queries = (widest_query(case["mask"], n), n // 2)
        for query in queries if seed < 2 else queries[:1]:
            assert_dominates(build(drawn, seed), tokens, query, case["target"])


def test_the_draws_are_more_than_five_hundred():
    assert 25 * len(MANY) >= 500


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("n", "mask"),
    [
        pytest.param(1, "strict_future", marks=pytest.mark.slow),
        (2, "none"),
        pytest.param(3, "strict_future", marks=pytest.mark.slow),
    ],
)
def test_certificates_dominate_on_short_inputs(mask, n):
    model = build({"num_layers": 3, "mask": mask})
    assert_dominates(model, draw_tokens(n), n - 1)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_certificates_dominate_on_longer_inputs(scale):
    model = build({"num_layers": 3, "scale": scale, "mask": "future"})
    assert_dominates(model, draw_tokens(33), 32)
