"""Exact influence <= certificates, and <= corrected <= C1 and C2, on models of any kind.

Weights are drawn many times for one architecture and length, which share what is
compiled; architectures and lengths meet in pairs.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bounds.influence import Influence, compute_influence
from bounds.lemma5.certificate import Certificate, certify_influence
from bounds.lemma5.certificate.certify import CertificateMethod
from bounds.lemma5.constants import closed_form_bounds
from tests.bounds.lemma5.constants.drawn import (
    FACTORS,
    VOCABULARY,
    Drawn,
    Measured,
    allowed,
    draw,
)
from tests.covering import cover

# Beyond it, the exact influence of one and two layers alone, by another method.
EXHAUSTIVE = 33
# From it on, positions are spaced evenly, the first and the last among them.
LONGEST = 4096


@dataclasses.dataclass(frozen=True)
class Compared:
    """The same substitutions by every method.

    A ratio is a bound over the lower end of the enclosure that the exact method gives:
    the true influence is at least that, so a ratio below 1 would refute the bound.
    """

    exact: Influence
    certificates: dict[str, Certificate]
    chain: Measured

    @property
    def centred(self) -> Certificate:
        return self.certificates["centred"]

    def ratio(self, found: Certificate) -> float:
        """The smallest over all substitutions whose influence is told from zero."""
        told = self.exact.lower > 0
        ratios = found.upper[told] / self.exact.lower[told]
        return float(ratios.min(initial=math.inf))

    def assert_dominated(self) -> None:
        substituted = ~np.isnan(self.exact.lower)
        rows = substituted.any(axis=1)
        for found in self.certificates.values():
            assert (np.isnan(found.upper) == ~substituted).all()
            assert (found.upper >= self.exact.lower)[substituted].all(), (
                found.method,
                self.ratio(found),
            )
            np.testing.assert_array_equal(
                found.position_upper[rows], np.nanmax(found.upper[rows], axis=1)
            )
        self.chain.assert_chain()


def compare(
    drawn: Drawn,
    length: int,
    seed: int,
    query: int,
    methods: Sequence[CertificateMethod] = ("centred", "base"),
) -> Compared:
    """The substitutions of one random input, the query's own token included."""
    model, tokens = (
        drawn.model,
        np.random.default_rng(seed).integers(0, VOCABULARY, length),
    )
    question: dict[str, Any] = {
        "query": query,
        "target": drawn.target,
        "include_query": True,
        "positions": None
        if length < LONGEST
        else np.linspace(0, length - 1, 64, dtype=int),
    }
    method = "exhaustive" if length <= EXHAUSTIVE else "incremental"
    exact = compute_influence(model, tokens, method=method, **question)
    assert exact.exact
    certificates: dict[str, Certificate] = {
        name: certify_influence(model, tokens, method=name, **question)
        for name in methods
    }
    forms = closed_form_bounds(model, length, query=query, target=drawn.target)
    own = exact.position_lower[query]
    others = np.nanmax(np.delete(exact.position_lower, query % length))
    chain = Measured(forms, float(others), float(own), 0.0)
    return Compared(exact, certificates, chain)


SCALES = (0.1, 0.3, 1.0, 3.0)
# Larger weights saturate: what is left of an influence drowns in its own rounding.
SHARP = 0.3
DRAWS = 16
LENGTHS = (2, 3, 8, 33)
SETTINGS = {name: values for name, values in FACTORS.items() if name != "scale"}
CELLS = cover({**SETTINGS, "length": LENGTHS}, 2, allowed)
# Every setting once; compilation is what they cost, so few are in the fast part.
FEW = [
    {**case, "num_layers": 1 + (index == 1)}
    for index, case in enumerate(cover({**SETTINGS, "length": LENGTHS}, 1, allowed))
]
DEEP = [
    {"num_layers": 3, "length": 2},
    {"num_layers": 4, "length": 3, "layer_norm": "pre"},
]
FAST = 2
SLOWER = [pytest.param(case, marks=pytest.mark.slow) for case in [*FEW[FAST:], *DEEP]]
LONG = [
    {"length": length, "num_layers": layers, **case}
    for length in (129, 1024, 4096)
    for layers, case in (
        (1, {"num_heads": 4, "masks": ("none",), "layer_norm": "post"}),
        (2, {"num_heads": 2, "masks": ("none",), "combine": "concat"}),
        (2, {"num_heads": 3, "masks": ("future",), "layer_norm": "pre"}),
        (2, {"num_heads": 1, "masks": ("strict_past",), "score": "additive"}),
    )
]


def name(case):
    return " ".join(str(value) for value in case.values())


def query_of(case):
    """A row that sees much: past masks see what follows."""
    masks = case.get("masks", ("none",))
    return 0 if any("past" in mask for mask in masks) else case["length"] - 1


def assert_all_dominated(case, draws, methods=("centred", "base")):
    """Every draw of the weights of an architecture, at scales from 0.1 to 3."""
    settings = {key: value for key, value in case.items() if key != "length"}
    closest = math.inf
    for seed in range(draws):
        drawn = draw(seed, **settings, scale=SCALES[seed % len(SCALES)])
        found = compare(drawn, case["length"], seed, query_of(case), methods)
        found.assert_dominated()
        if case["num_layers"] <= 2 and SCALES[seed % len(SCALES)] <= SHARP:
            # Two exact numbers: their distance is the rounding of both.
            most = found.exact.max_upper * (1 + 1e-6)
            assert found.centred.max_upper <= most, name(case)
        closest = min(closest, found.ratio(found.centred))
    # A bound that is never met is not worth having.
    if case["num_layers"] <= 2:
        assert closest <= 1 + 1e-8


@pytest.mark.parametrize("case", [*FEW[:FAST], *SLOWER], ids=name)
def test_every_bound_dominates(case):
    # The one around the base is compiled apart; of one layer that is quick.
    shallow = case["num_layers"] == 1
    assert_all_dominated(case, 2, ("centred", "base") if shallow else ("centred",))


@pytest.mark.slow
@pytest.mark.parametrize("case", CELLS, ids=name)
def test_every_bound_dominates_in_every_pair_of_features(case):
    assert_all_dominated(case, DRAWS)


def test_the_pairs_are_500_models_at_every_length_and_depth():
    assert DRAWS * len(CELLS) >= 500
    met = {(case["length"], case["num_layers"]) for case in CELLS}
    assert met == {(n, depth) for n in LENGTHS for depth in (1, 2, 3, 4)}
    assert {case["num_heads"] for case in CELLS} == {1, 2, 3, 4}


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG, ids=name)
def test_every_bound_dominates_on_long_inputs(case):
    assert_all_dominated(case, 4 if case["length"] < 1000 else 2)


def test_a_certificate_that_is_a_little_too_small_is_noticed():
    """Of one layer, where it is exact: by a millionth, or for another position."""
    case = next(x for x in FEW if x["num_layers"] == 1 and x["length"] == 8)
    settings = {key: value for key, value in case.items() if key != "length"}
    found = compare(draw(0, **settings, scale=1.0), 8, 0, query_of(case))
    assert set(found.certificates) == {"centred", "base"}
    found.assert_dominated()
    for wrong in (
        found.centred.upper * (1 - 1e-6),
        np.roll(found.centred.upper, 1, axis=0),
    ):
        told = found.exact.lower > 0
        assert (wrong[told] < found.exact.lower[told]).any()
