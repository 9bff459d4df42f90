"""DYCK: thresholds and margins recomputed, one layer by enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from bounds.restriction.closed_form.dyck import (
    CERTIFIED,
    FLOATS,
    DyckParameters,
    _central,
    closed_form_dyck,
    dyck_margin,
    dyck_threshold,
    one_layer_dyck_threshold,
    proves,
)
from bounds.restriction.closed_form.route_switching import (
    SwitchingStep,
    deep_probability,
)
from bounds.restriction.closed_form.routes import (
    DYCK_RELEASED,
    _dyck_parameters,
    computable_length,
)
from tests.bounds.restriction.drawn_models import completions

# The specification's thresholds, by windows of a third of the length.
PUBLISHED = {
    (2, 1): 720,
    (2, 2): 1432,
    (2, 4): 3296,
    (2, 8): 8640,
    (3, 1): 1654784,
    (3, 2): 3194880,
}
FREE = -1


def threshold(parameters):
    """The threshold of parameters that have one."""
    length = dyck_threshold(parameters)
    assert length is not None
    return length


def both_classes(window, prefix):
    """Whether a window, -1 where free and inside open brackets, may be in DYCK or not."""
    words = completions([0] * prefix + window + [1] * prefix)
    heights = np.cumsum(1 - 2 * words, axis=1)
    members = (heights[:, -1] == 0) & (heights >= 0).all(axis=1)
    return members.any() and not members.all()


def coin_sum(num_coins):
    """The exact law of the sum of m coins: value -> probability."""
    return {
        2 * heads - num_coins: Fraction(math.comb(num_coins, heads), 2**num_coins)
        for heads in range(num_coins + 1)
    }


@pytest.mark.parametrize("spread", [0.12, 0.4, 0.8, 1.6, 2.5])
@pytest.mark.parametrize("bound", [9, 60, 400, 900])
def test_the_sum_stays_near_zero_as_often_as_promised(spread, bound):
    """For every number m <= G of coins, against the exact law."""
    root = math.sqrt(bound)
    promised = _central(spread, root, FLOATS)
    for coins in (0, 1, 2, bound // 3, bound // 2, bound - 1, bound):
        law = coin_sum(coins)
        exact = sum(p for value, p in law.items() if abs(value) <= spread * root)
        assert promised <= float(exact) + 1e-12
    if bound == 900 and spread > 0.2:
        # Within a factor of four of all coins: a promise that says nothing would pass too.
        assert float(exact) <= 4 * promised


@pytest.mark.parametrize("shape", DYCK_RELEASED, ids=str)
def test_the_released_parameters_prove_less_than_the_published_thresholds(shape):
    parameters = _dyck_parameters(*shape)
    length = threshold(parameters)
    assert length % 2 == 0
    assert proves(parameters, length)
    assert not proves(parameters, length - 2)
    assert computable_length(*shape) < length
    assert length < PUBLISHED.get(shape, math.inf)
    # PARITY is the easier to miss.
    assert length < 1000 * computable_length(*shape) ** 4
    for larger in (length + 2, 2 * length, 3 * length + 1, 1000 * length):
        assert proves(parameters, larger + larger % 2)


def test_a_bracket_may_stay_free_with_probability_one_half():
    parameters = DyckParameters(
        1, (SwitchingStep(Fraction(1, 2), 9),), (Fraction(0),), (None,), Fraction(1, 10)
    )
    assert 36 < threshold(parameters) < 400


def test_the_margin_of_three_layers_is_its_formula_by_hand():
    """L = 3, H = 1: first only J held, then the sum held to c √G, with plain floats."""
    first, second = (
        SwitchingStep(Fraction(13, 40), 7),
        SwitchingStep(Fraction(73, 2800), 25),
    )
    deep = tuple(
        deep_probability(t, 1, step.depth, step.star_probability)
        for t, step in ((1, first), (7, second))
    )
    delta, spread = Fraction(1, 12), Fraction(3, 25)
    parameters = DyckParameters(1, (first, second), deep, (None, spread), delta)
    n, risk = 24000, 1 / 12
    p_1, p_2 = float(first.star_probability), float(second.star_probability)

    def walk(bound, p, chance):
        u = math.log(2 / chance) / ((1 - p) * bound)
        v = (1 - p) * (1 + u / 2 + u * u / 4)
        return math.sqrt(2 * v * bound * math.log(2 / chance))

    def losses(bound):
        """x_1, the repairs of both steps, y_2, x_2."""
        stars = p_1 * bound + math.sqrt(bound * math.log(12) / 2)
        near = (0.12 * math.sqrt(stars) - 1) / (2.2 * math.sqrt(stars) + 1)
        near *= 1 - 2 * math.exp(-(2.2**2) / 2)
        repairs = (
            (n + 1) * 2 * float(deep[0]) / (0.999 - 3 * risk),
            (n + 1) * 14 * float(deep[1]) / (near * (0.949 - risk)),
        )
        last = walk(stars, p_2, near / 20)
        return walk(bound, p_1, risk), repairs, 0.12 * math.sqrt(stars), last

    low, high = 10.0, float(n)
    while high - low > 1e-9:
        middle = (low + high) / 2
        x_1, repairs, _, x_2 = losses(middle)
        wide = n - 2 * (x_1 + x_2 + sum(repairs) + 50) < middle
        low, high = (low, middle) if wide else (middle, high)
    x_1, repairs, y_2, _ = losses(high)
    free = high - 2
    for p, moved, fixed in ((p_1, x_1, repairs[0]), (p_2, y_2, repairs[1])):
        few = math.sqrt(2 * p * (1 - p) * free * math.log(12))
        free = p * free - few - moved - 2 * fixed
    expected = free - 100
    # The bound on the window is found by rounds, not by bisection.
    found = dyck_margin(parameters, n, FLOATS)
    assert found == pytest.approx(expected, abs=0.01)
    assert float(dyck_margin(parameters, n, CERTIFIED).a) == pytest.approx(found)


@pytest.mark.parametrize(("layers", "heads"), [(2, 1), (2, 8), (3, 2), (6, 3)])
def test_the_closed_form_is_weaker_than_the_table_and_certified(layers, heads):
    closed = closed_form_dyck(layers, heads)
    assert closed is not None
    assert closed.top % 2 == 0
    if (layers, heads) in DYCK_RELEASED:
        assert closed.top > threshold(_dyck_parameters(layers, heads))
    assert closed.top > computable_length(layers, heads)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_one_layer_leaves_both_classes_whatever_is_fixed(heads):
    """P = H, M = 2H: after any H brackets of the window, fixed in any way."""
    assert one_layer_dyck_threshold(heads) == 4 * heads
    for places in itertools.combinations(range(2 * heads), heads):
        for values in itertools.product((0, 1), repeat=heads):
            window = [FREE] * (2 * heads)
            for place, value in zip(places, values, strict=True):
                window[place] = value
            assert both_classes(window, heads)
    # One more bracket fixed is too much: all of them open.
    window = [0] * (heads + 1) + [FREE] * (heads - 1)
    assert not both_classes(window, heads)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"deep": ()}, "1 steps, 0 shares of deep activations and 1 spreads"),
        ({"steps": (SwitchingStep(Fraction(3, 5), 5),)}, "star_probability is 3/5"),
        ({"spreads": (Fraction(0),)}, r"spreads\[0\] is 0"),
    ],
)
def test_parameters_out_of_range_are_named(change, complaint):
    fields = {
        "num_heads": 1,
        "steps": (SwitchingStep(Fraction(1, 5), 5),),
        "deep": (Fraction(1, 100),),
        "spreads": (None,),
        "delta": Fraction(1, 10),
    }
    with pytest.raises(ValueError, match=complaint):
        DyckParameters(**{**fields, **change})
