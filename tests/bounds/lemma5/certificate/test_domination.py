"""Exact influence <= certificates, and <= corrected <= C1 and C2, on models of any kind.

Weights are drawn many times for one architecture and length, which share what is
compiled; architectures and lengths meet in pairs.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bounds.influence import Influence, compute_influence
from bounds.lemma5.certificate import Certificate, certify_influence
from bounds.lemma5.certificate.certify import CertificateMethod
from bounds.lemma5.constants import ClosedForms, closed_form_bounds
from tests.bounds.lemma5.constants.drawn import (
    FACTORS,
    VOCABULARY,
    Drawn,
    allowed,
    draw,
)
from tests.covering import cover

# Beyond it, the exact influence of one and two layers alone, by another method.
EXHAUSTIVE = 33
# From it on, positions are spaced evenly, the first and the last among them.
LONGEST = 4096


def smallest_ratio(found: Certificate, exact: Influence) -> float:
    """Smallest certificate over the lower end of an influence that is told from zero."""
    told = exact.lower > 0
    return float((found.upper[told] / exact.lower[told]).min(initial=math.inf))


# Two float recursions over n rows: each is certified, their order holds up to rounding.
ROUNDING = 1e-12


def assert_chain(forms: ClosedForms, others: float, own: float) -> None:
    """The influences are below the corrected bounds, and those below all weaker ones."""
    assert others <= forms.corrected.others.value
    assert own <= forms.corrected.own.value
    weaker = [(forms.linear, x) for x in (forms.c1, forms.c2, forms.causal)]
    for smaller, larger in ((forms.corrected, forms.linear), *weaker):
        for name in ("others", "own") if larger is not None else ():
            low = getattr(smaller, name).log_value
            assert low <= getattr(larger, name).log_value + ROUNDING
    assert (forms.c1 is None) == (forms.c2 is None) == forms.constants.is_masked


def compare(
    drawn: Drawn,
    length: int,
    seed: int,
    query: int,
    methods: Sequence[CertificateMethod] = ("centred", "base"),
) -> tuple[Influence, list[Certificate]]:
    """Influences and certificates of one random input, the query's token included."""
    tokens = np.random.default_rng(seed).integers(0, VOCABULARY, length)
    asked: dict[str, Any] = {"query": query, "target": drawn.target}
    positions = None
    if length >= LONGEST:
        positions = np.linspace(0, length - 1, 64, dtype=int)
    how = {**asked, "include_query": True, "positions": positions}
    method = "exhaustive" if length <= EXHAUSTIVE else "incremental"
    exact = compute_influence(drawn.model, tokens, method=method, **how)
    assert exact.exact
    substituted = ~np.isnan(exact.lower)
    rows, found = substituted.any(axis=1), []
    for name in methods:
        found.append(certify_influence(drawn.model, tokens, method=name, **how))
        upper, by_position = found[-1].upper, found[-1].position_upper[rows]
        assert (np.isnan(upper) == ~substituted).all()
        # The true influence is at least the lower end of its enclosure.
        assert (upper >= exact.lower)[substituted].all(), name
        np.testing.assert_array_equal(by_position, np.nanmax(upper[rows], axis=1))
    own = float(exact.position_lower[query])
    others = float(np.nanmax(np.delete(exact.position_lower, query % length)))
    forms = closed_form_bounds(drawn.model, length, **asked)
    assert_chain(forms, others, own)
    return exact, found


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
        given = drawn, case["length"], seed, query_of(case)
        exact, (centred, *_) = compare(*given, methods)
        if case["num_layers"] <= 2 and SCALES[seed % len(SCALES)] <= SHARP:
            # Two exact numbers: their distance is the rounding of both.
            most = exact.max_upper * (1 + 1e-6)
            assert centred.max_upper <= most, name(case)
        closest = min(closest, smallest_ratio(centred, exact))
    # A bound that is never met is not worth having.
    if case["num_layers"] <= 2:
        assert closest <= 1 + 1e-8


@pytest.mark.parametrize("case", [*FEW, *DEEP], ids=name)
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
    drawn = draw(0, **settings, scale=1.0)
    exact, (centred, _) = compare(drawn, 8, 0, query_of(case))
    told = exact.lower > 0
    for wrong in (centred.upper * (1 - 1e-6), np.roll(centred.upper, 1, axis=0)):
        assert (wrong[told] < exact.lower[told]).any()


def test_half_of_a_closed_form_is_below_some_influence():
    """A chain of bounds that are twice too small would be noticed."""
    model = draw(0, scale=0.1, biases=False).model
    exact = compute_influence(model, [2, 1], method="exhaustive")
    assert exact.max_lower > closed_form_bounds(model, 2).corrected.others.value / 2
