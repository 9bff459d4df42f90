"""The masked recursion is the formula it states, and harmonic where that is exact."""

import dataclasses
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from benchmarks import reference
from bounds.lemma5.closed_form import (
    MASKS,
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    causal_bound,
    masked_recursion,
    scaled_causal_average_influence,
)
from bounds.lemma5.closed_form.masked_recursion import (
    _changes,
    largest_weighted_mean,
    visible_changes,
)
from bounds.numbers.interval import interval, upper
from jax_models.model.mask import SIGHTS

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
SILENT = dataclasses.replace(MIXED, heads=(HeadConstants(DotProduct(0.4), 0.0),))


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
            sees = reference.visible(mask, n)
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
        e, sums = mpmath.exp(2 * a), [0, *itertools.accumulate(inside)]
        mean = max(
            (e * top + sums[-1] - top) / (e * k + m - k) for k, top in enumerate(sums)
        )
        change = mean + norm * of_query * u[j] + 2 * norm * of_key * mean
        total += head.gain * (min(change, 2 * norm) if saturating else change)
    return min(total, layer.output_cap) if saturating else total


def worst(layers, masks, n, saturating):
    """Largest change of each row j under any i != j, and of the changed row, as stated."""
    runs = [by_definition(layers, masks, n, 0.01, i, saturating) for i in range(n)]
    others = [max(runs[i][j] for i in range(n) if i != j) for j in range(n)]
    return [*others, max(runs[i][i] for i in range(n))]


def every_row(layers, masks, n, saturating=True):
    """Bounds on each row under a change at any other, and on the changed row."""
    given = layers, masks, n, 0.01
    found = [masked_recursion(*given, query=j, saturating=saturating) for j in range(n)]
    return [*(x.others for x in found), found[0].own]


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("mask", ["none", "future", "past"])
def test_it_is_the_recursion_as_stated_at_the_worst_position(mask, saturating):
    """For the masks in which sorting loses nothing, and heads that write nothing."""
    for layers in ([MIXED], [MIXED] * 2, [MIXED] * 3, [SILENT] * 2):
        given = layers, [mask] * len(layers), 7, saturating
        for bound, exact in zip(every_row(*given), worst(*given), strict=True):
            if exact == 0:
                assert bound.log_value == -math.inf
                continue
            assert bound.value >= exact
            assert bound.value == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("masks", [["strict_future"] * 3, ["past", "future", "none"]])
def test_it_is_never_below_the_recursion_as_stated(masks):
    given = [MIXED] * 3, masks, 7, True
    for bound, exact in zip(every_row(*given), worst(*given), strict=True):
        assert bound.value >= exact


@pytest.mark.parametrize("n", [1, 2, 64, 4096])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_causal_averaging_attains_it(n, depth):
    found = masked_recursion([AVERAGE] * depth, ["future"] * depth, n, 1.0)
    if n == 1:
        assert found.others.value == 0.0
        return
    exact = scaled_causal_average_influence(n, depth)
    assert n * found.others.value >= exact * (1 - 1e-15)
    assert n * found.others.value == pytest.approx(exact, rel=1e-11)


def test_a_row_that_sees_nothing_keeps_its_skip_only():
    for mask in ("strict_future", "strict_past"):
        alone = masked_recursion([MIXED], [mask], 1, 0.1)
        assert alone.own.value == pytest.approx(1.1 * 0.1, rel=1e-14)


@pytest.mark.parametrize("seed", range(8))
def test_the_rounding_of_a_row_is_covered(seed):
    """Exact rationals, where no quotient of constants rounds and every sum does."""
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0, 1, (4, 2)).tolist()
    heads = tuple(HeadConstants(Additive(q, 0.0, 0.0), gain) for gain, q in sizes)
    layer = LayerConstants(norm=1.0, heads=heads, skip_gain=1.0)
    (_, own), scale = _changes([layer], ["future"], 1, interval(1), False)
    exact = 1 + sum(Fraction(gain) * (1 + Fraction(q)) for gain, q in sizes)
    assert Fraction(float(own)) * Fraction(upper(scale)) >= exact


def test_a_change_below_the_floats_is_not_zero():
    tiny = HeadConstants(DotProduct(0.0), 1e-200)
    first = LayerConstants(norm=1.0, heads=(tiny,), skip_gain=1.0)
    second = dataclasses.replace(AVERAGE, skip_gain=1e-200)
    masks = ["future", "strict_past"]
    found = masked_recursion([first, second], masks, 2, 1.0)
    # Row 1 averages half of row 0 first, and then keeps 1e-200 of what it has.
    assert found.others.log_value >= math.log(0.5) - 400 * math.log(10)


@pytest.mark.parametrize("norm", [1e3, 1e6, 1e150])
@pytest.mark.parametrize("saturating", [False, True])
def test_nothing_overflows(norm, saturating):
    heads = (HeadConstants(DotProduct(2.0), 1.0),) * 2
    layers = [LayerConstants(norm=norm, heads=heads, skip_gain=3.0)] * 8
    found = masked_recursion(layers, ["future"] * 8, 50, 1.0, saturating=saturating)
    assert found.others.log_value < math.inf
    if saturating:
        # Two heads of diameter 2F, and three times what came before, at most.
        most = math.log(norm) + 8 * math.log(3) + math.log(8)
        assert found.others.log_value < most
    else:
        assert found.others.log_value > 8 * 2 * math.log(norm)


def test_masks_are_as_many_as_layers():
    with pytest.raises(ValueError, match="2 layers and 1 masks"):
        masked_recursion([MIXED] * 2, ["none"], 3, 1.0)


LAYER = LayerConstants(
    norm=1.0, heads=(HeadConstants(DotProduct(0.1, 0.05), 0.8),), skip_gain=0.9
)

# Weights may differ by a factor e, and nothing but the average moves.
UNEVEN = LayerConstants(
    norm=1.0, heads=(HeadConstants(Additive(0.0, 0.5, 0.5), 1.0),), skip_gain=0.0
)


def averaged(n, depth):
    """n times the influence of symbol 1 on row n, by averaging exact rationals."""
    row = [Fraction(1)] + [Fraction(0)] * (n - 1)
    for _ in range(depth):
        sums = itertools.accumulate(row)
        row = [total / j for j, total in enumerate(sums, start=1)]
    return n * row[-1]


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 2, 7, 60, 256])
def test_the_closed_form_of_causal_averaging_is_exact(n, depth):
    assert scaled_causal_average_influence(n, depth) == float(averaged(n, depth))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(("n", "position"), [(2, 0), (40, 7), (40, 38), (4000, 0)])
@pytest.mark.parametrize("layer", [LAYER, UNEVEN], ids=["even", "uneven"])
def test_the_bound_dominates_the_recursion_it_is_derived_from(
    layer, depth, n, position
):
    layers = [layer] * depth
    masks, bound = ["future"] * depth, causal_bound(layers, n, position, 0.5)
    if n > 100:
        linear = masked_recursion(layers, masks, n, 0.5, saturating=False)
        changes = [linear.others.log_value, linear.own.log_value]
    else:
        rows = by_definition(layers, masks, n, 0.5, position, False)
        changes = [float(mpmath.log(rows[j])) for j in (-1, position)]
    assert changes[0] <= bound.others.log_value + 1e-12
    assert changes[1] <= bound.own.log_value + 1e-12


def test_the_neighbour_of_the_query_has_no_logarithm():
    """n times the bound settles for i = n - 1 and grows like (ln n)² for i = 1."""
    layers = [LAYER] * 3
    lengths = 10.0 ** np.arange(3, 13, 3)
    near = [causal_bound(layers, int(n), int(n) - 2, 1.0).others for n in lengths]
    far = [causal_bound(layers, int(n), 0, 1.0).others for n in lengths]
    scaled = [b.log_value + math.log(n) for b, n in zip(near, lengths, strict=True)]
    assert max(scaled) - min(scaled) < 0.01
    scaled = [b.log_value + math.log(n) for b, n in zip(far, lengths, strict=True)]
    growth = np.polyfit(np.log(np.log(lengths)), scaled, 1)[0]
    assert 1.5 < growth < 2.0


LENGTH = 5
INDEX = np.arange(LENGTH)


@pytest.mark.parametrize("mask", MASKS)
def test_changed_rows_are_those_that_are_seen(mask):
    """Row i is changed, and of the others those that are said to be."""
    seen = np.asarray(SIGHTS[mask].visible(INDEX[:, None], INDEX))
    total, others = seen.sum(axis=1), INDEX[:, None] != INDEX
    for bits in itertools.product([False, True], repeat=LENGTH):
        changed = np.array(bits)
        present, counted = visible_changes(mask, changed)
        # [i, j]: what row j sees if row i is the changed one.
        counts = np.array(
            [(seen & (changed | (i == INDEX))).sum(axis=1) for i in INDEX]
        )
        most, own = np.max(counts, axis=0, where=others, initial=0), np.diag(counts)
        # A row that sees all changed rows but one may be held to see them all.
        assert (present[:LENGTH] >= most).all()
        assert (present[:LENGTH] <= np.minimum(most + 1, total)).all()
        np.testing.assert_array_equal(present[LENGTH:], own)
        np.testing.assert_array_equal(counted, [*total, *total])


def test_many_numbers_keep_their_certificate():
    """Sums of 10^5 floats: above the exact rational mean, and close to it."""
    rng = np.random.default_rng(0)
    numbers = -np.sort(-rng.random(100_000))
    present = np.array([100_000, 70_000])
    light = 0.01
    found = largest_weighted_mean(numbers, present, present, light)
    for c, value in zip(present, found, strict=True):
        sums = list(itertools.accumulate(Fraction(float(x)) for x in numbers[:c]))
        # The ratio rises and then falls in k: look around the numeric optimum.
        floats = np.cumsum(numbers[:c])
        k = np.arange(1, c + 1)
        ratio = (light * floats[-1] + (1 - light) * floats) / (
            light * c + (1 - light) * k
        )
        best = max(
            (Fraction(light) * sums[-1] + (1 - Fraction(light)) * sums[i])
            / (Fraction(light) * int(c) + (1 - Fraction(light)) * (i + 1))
            for i in range(int(np.argmax(ratio)) - 3, int(np.argmax(ratio)) + 4)
        )
        assert Fraction(float(value)) >= best
        assert float(value) <= float(best) * (1 + 1e-9)
