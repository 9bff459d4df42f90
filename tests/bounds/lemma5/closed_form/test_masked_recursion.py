"""The masked recursion is the formula it states, and harmonic where that is exact."""

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from benchmarks.reference import visible
from bounds.lemma5.closed_form import (
    MASKS,
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    influence_recursion,
    masked_recursion,
    scaled_causal_average_influence,
)
from bounds.numbers.interval import upper
from tests.bounds.lemma5.closed_form.sharp import CASES

AVERAGE = LayerConstants(
    norm=1.0, heads=(HeadConstants(DotProduct(0.0), 1.0),), skip_gain=0.0
)
MIXED = LayerConstants(
    norm=1.3,
    heads=(
        HeadConstants(DotProduct(0.4, 0.1), 0.7),
        HeadConstants(Additive(0.3, 0.5, 2.0), 1.2),
    ),
    skip_gain=1.1,
    input_gain=1.5,
    output_cap=2.9,
)


def by_definition(layers, masks, n, distance, position, saturating):
    """The vector recursion as printed, with 50 digits and every k tried."""
    with mpmath.workdps(50):
        r = [mpmath.mpf(0)] * n
        r[position] = mpmath.mpf(distance)
        for layer, mask in zip(layers, masks, strict=True):
            norm = mpmath.mpf(layer.norm)
            u = [layer.input_gain * x for x in r]
            if saturating:
                u = [min(x, 2 * norm) for x in u]
            sees = visible(mask, n)
            r = [_row(layer, norm, r[j], u, sees[j], j, saturating) for j in range(n)]
        return r


def _row(layer, norm, old, u, sees, j, saturating):
    total = layer.skip_gain * old
    inside = sorted((u[w] for w in range(len(u)) if sees[w]), reverse=True)
    for head in layer.heads if inside else ():
        score, m = head.score, len(inside)
        if isinstance(score, DotProduct):
            of_query, of_key = score.mu * norm, score.mu * norm + score.c
            a = score.mu * norm**2 + score.c * norm
        else:
            of_query, of_key = score.m1, score.m2
            a = min(score.sup, score.m2 * norm)
        e = mpmath.exp(2 * a)
        mean = max(
            (e * mpmath.fsum(inside[:k]) + mpmath.fsum(inside[k:])) / (e * k + m - k)
            for k in range(m + 1)
        )
        change = mean + norm * of_query * u[j] + 2 * norm * of_key * mean
        total += head.gain * (min(change, 2 * norm) if saturating else change)
    return min(total, layer.output_cap) if saturating else total


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("mask", ["none", "future", "past"])
@pytest.mark.parametrize("position", [0, 2, 6])
def test_it_is_the_recursion_as_stated(mask, position, saturating):
    layers, n, distance = [MIXED] * 3, 7, 0.01
    for depth in (1, 2, 3):
        masks = [mask] * depth
        exact = by_definition(layers[:depth], masks, n, distance, position, saturating)
        found = masked_recursion(
            layers[:depth],
            masks,
            n,
            distance,
            position=position,
            saturating=saturating,
        )
        for j in range(n):
            bound = found.own() if j == position else found.others(j)
            assert bound.value >= exact[j]
            assert bound.value == pytest.approx(float(exact[j]), rel=1e-12)


@pytest.mark.parametrize("masks", [["strict_future"] * 3, ["past", "future", "none"]])
def test_it_is_never_below_the_recursion_as_stated(masks):
    layers, n = [MIXED] * 3, 7
    for position in range(n):
        exact = by_definition(layers, masks, n, 0.01, position, True)
        found = masked_recursion(layers, masks, n, 0.01, position=position)
        for j in range(n):
            bound = found.own() if j == position else found.others(j)
            assert bound.value >= exact[j]


@pytest.mark.parametrize("n", [1, 2, 64, 4096])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_causal_averaging_attains_it(n, depth):
    found = masked_recursion([AVERAGE] * depth, ["future"] * depth, n, 1.0)
    if n == 1:
        assert found.others(0).value == 0.0
        return
    exact = scaled_causal_average_influence(n, depth)
    assert n * found.others(-1).value >= exact * (1 - 1e-15)
    assert n * found.others(-1).value == pytest.approx(exact, rel=1e-11)


def causal(case):
    """Whether the causal bound on a sharp case dominates it, the query coming last."""
    found = masked_recursion(
        [case.layer], ["future"], case.length, case.distance, position=0
    )
    return case.exact <= found.others(-1).value * (1 + 1e-12)


def test_it_dominates_where_it_is_nearly_attained():
    assert all(causal(case) for case in CASES)


def test_an_off_by_one_length_is_caught(monkeypatch):
    module = __import__(masked_recursion.__module__, fromlist=["_"])
    true = module.largest_weighted_mean
    wrong = lambda r, c, m, e: true(r, c, m + 1, e)
    monkeypatch.setattr(module, "largest_weighted_mean", wrong)
    caught = {case.name for case in CASES if not causal(case)}
    assert caught == {"uniform, n = 2", "uniform, n = 8"}


@pytest.mark.parametrize("mask", ["none", "future", "past"])
def test_one_run_for_every_position_covers_each_of_them(mask):
    """For the masks in which sorting loses nothing, it is the worst of them."""
    n, given = 9, ([MIXED] * 3, [mask] * 3, 9, 0.3)
    runs = [masked_recursion(*given, position=i) for i in range(n)]
    every = masked_recursion(*given)
    for j in range(n):
        worst = max(runs[i].others(j).log_value for i in range(n) if i != j)
        assert every.others(j).log_value == pytest.approx(worst, abs=1e-10)
    worst = max(run.own().log_value for run in runs)
    assert every.own().log_value == pytest.approx(worst, abs=1e-10)


def test_rows_before_a_causal_change_do_not_move():
    found = masked_recursion([MIXED] * 2, ["future"] * 2, 9, 0.1, position=4)
    for j in range(4):
        assert found.others(j).log_value == -math.inf
    assert found.others(5).value > found.others(8).value > 0


def test_a_row_that_sees_nothing_keeps_its_skip_only():
    found = masked_recursion([MIXED], ["strict_future"], 3, 0.1, position=0)
    assert found.own().value == pytest.approx(1.1 * 0.1, rel=1e-14)
    alone = masked_recursion([MIXED], ["strict_past"], 1, 0.1)
    assert alone.own().value == pytest.approx(1.1 * 0.1, rel=1e-14)


def test_without_a_mask_it_has_the_rate_of_the_unmasked_recursion():
    lengths = 10 ** np.arange(3, 6)
    logs = [
        masked_recursion([MIXED] * 2, ["none"] * 2, int(n), 1e-3).others(0).log_value
        for n in lengths
    ]
    slope = np.polyfit(np.log(lengths), logs, 1)[0]
    assert -1.01 < slope < -0.99
    other = influence_recursion([MIXED] * 2, 10**5, 1e-3)[-1].others
    assert abs(logs[-1] - other.log_value) < math.log(3)


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("mask", ["none", "future", "past"])
def test_heads_that_write_nothing_change_no_other_row(mask, saturating):
    """Zero, not the smallest float: the unmasked and the causal form say zero too."""
    silent = dataclasses.replace(MIXED, heads=(HeadConstants(DotProduct(0.4), 0.0),))
    rows = masked_recursion([silent] * 2, [mask] * 2, 5, 0.1, saturating=saturating)
    alone = influence_recursion([silent] * 2, 5, 0.1, saturating=saturating)[-1]
    for row in range(5):
        assert rows.others(row).log_value == alone.others.log_value == -math.inf
    assert rows.own().value == pytest.approx(alone.own.value, rel=1e-12)
    heard = masked_recursion([silent, MIXED], [mask] * 2, 5, 0.1, saturating=saturating)
    seeing = 0 if mask == "past" else 4
    assert heard.others(seeing).value > 0


@pytest.mark.parametrize("seed", range(8))
def test_the_rounding_of_a_row_is_covered(seed):
    """Exact rationals, where no quotient of constants rounds and every sum does."""
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0, 1, (4, 2)).tolist()
    heads = tuple(HeadConstants(Additive(q, 0.0, 0.0), gain) for gain, q in sizes)
    layer = LayerConstants(norm=1.0, heads=heads, skip_gain=1.0)
    found = masked_recursion([layer], ["future"], 1, 1.0, saturating=False)
    exact = 1 + sum(Fraction(gain) * (1 + Fraction(q)) for gain, q in sizes)
    assert Fraction(found.relative_own) * Fraction(upper(found.scale)) >= exact


def test_a_change_below_the_floats_is_not_zero():
    tiny = HeadConstants(DotProduct(0.0), 1e-200)
    first = LayerConstants(norm=1.0, heads=(tiny,), skip_gain=1.0)
    second = dataclasses.replace(AVERAGE, skip_gain=1e-200)
    masks = ["future", "strict_past"]
    found = masked_recursion([first, second], masks, 2, 1.0, position=0)
    # Row 1 averages half of row 0 first, and then keeps 1e-200 of what it has.
    assert found.others(1).log_value >= math.log(0.5) - 400 * math.log(10)


def test_no_distance_no_change():
    found = masked_recursion([MIXED] * 2, ["future", "none"], 5, 0.0)
    assert found.own().log_value == -math.inf
    assert found.others(-1).log_value == -math.inf


@pytest.mark.parametrize("norm", [1e3, 1e6, 1e150])
@pytest.mark.parametrize("saturating", [False, True])
def test_nothing_overflows(norm, saturating):
    heads = (HeadConstants(DotProduct(2.0), 1.0),) * 2
    layers = [LayerConstants(norm=norm, heads=heads, skip_gain=3.0)] * 8
    found = masked_recursion(layers, ["future"] * 8, 50, 1.0, saturating=saturating)
    assert found.others(-1).log_value < math.inf
    if saturating:
        # Two heads of diameter 2F, and three times what came before, at most.
        most = math.log(norm) + 8 * math.log(3) + math.log(8)
        assert found.others(-1).log_value < most
    else:
        assert found.others(-1).log_value > 8 * 2 * math.log(norm)


def test_constants_beyond_the_floats_say_nothing():
    layer = LayerConstants(
        norm=math.inf, heads=(HeadConstants(DotProduct(1.0), 1.0),), skip_gain=1.0
    )
    found = masked_recursion([layer], ["future"], 4, 1.0)
    assert found.others(-1).log_value == math.inf


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="2 layers and 1 masks"):
        masked_recursion([MIXED] * 2, ["none"], 3, 1.0)
    with pytest.raises(
        ValueError, match=r"masks\[0\] is 'causal', expected one of none"
    ):
        masked_recursion([MIXED], ["causal"], 3, 1.0)
    with pytest.raises(
        ValueError, match=r"position is 3, expected it in \[0, length = 3\)"
    ):
        masked_recursion([MIXED], ["none"], 3, 1.0, position=3)
    found = masked_recursion([MIXED], ["none"], 3, 1.0, position=2)
    for query in (-1, 2, 3):
        with pytest.raises(ValueError, match="other than the changed one"):
            found.others(query)
    assert set(MASKS) == {"none", "future", "past", "strict_future", "strict_past"}
