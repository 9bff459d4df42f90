"""The largest weighted mean, against exact rationals over all heavy sets."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from bounds.lemma5.closed_form.masked_recursion import largest_weighted_mean


def exact(numbers, visible, inverse_ratio):
    """Maximise over all extreme points: any subset may carry the large weight."""
    padded = [Fraction(x) for x in numbers] + [Fraction(0)] * (visible - len(numbers))
    light = Fraction(inverse_ratio)
    best = Fraction(0)
    for heavy in itertools.product([False, True], repeat=visible):
        weights = [Fraction(1) if h else light for h in heavy]
        total = sum(weights)
        if total:
            mean = sum(w * x for w, x in zip(weights, padded, strict=True)) / total
            best = max(best, mean)
    return best


@pytest.mark.parametrize("inverse_ratio", [0.0, 1e-300, 1e-9, 0.02, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_maximum_and_never_below_it(inverse_ratio, seed):
    rng = np.random.default_rng(seed)
    numbers = -np.sort(-(rng.random(7) ** rng.integers(1, 9)))
    numbers[rng.integers(3, 8) :] = 0.0
    rows = [(c, m) for m in range(1, 9) for c in range(min(m, 7) + 1)]
    present, visible = (np.array(x) for x in zip(*rows, strict=True))
    found = largest_weighted_mean(numbers, present, visible, inverse_ratio)
    for (c, m), value in zip(rows, found, strict=True):
        best = exact(numbers[:c], m, inverse_ratio)
        assert Fraction(float(value)) >= best
        assert float(value) <= float(best) * (1 + 1e-13)


def test_equal_numbers_have_their_own_mean():
    found = largest_weighted_mean(np.ones(5), np.array([5]), np.array([5]), 0.3)
    assert found[0] == 1.0


def test_nothing_present_gives_zero():
    found = largest_weighted_mean(np.zeros(3), np.array([0, 2]), np.array([0, 3]), 0.5)
    assert list(found) == [0.0, 0.0]


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
