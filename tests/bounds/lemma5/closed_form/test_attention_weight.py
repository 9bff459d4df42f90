"""The largest weight is attained, and both relaxations of it lie above."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from bounds.lemma5.closed_form import DotProduct, largest_weight, printed_tight


@pytest.mark.parametrize("visible", [1, 2, 3, 5])
@pytest.mark.parametrize("a", [0.0, 0.3, 2.0, 20.0])
def test_it_is_the_largest_weight_over_all_extreme_logits(visible, a):
    # A weight is monotone in every logit, so the extreme points suffice.
    logits = np.array(list(itertools.product([-a, a], repeat=visible)))
    weights = np.exp(logits - a)
    weights /= weights.sum(axis=1, keepdims=True)
    bound = largest_weight(a, visible)
    assert bound.value == pytest.approx(weights.max(), rel=1e-14)
    assert bound.value >= weights.max() * (1 - 1e-15)


@pytest.mark.parametrize("n", [2, 3, 100, 10**9])
@pytest.mark.parametrize("a", [0.0, 0.5, 5.0, 40.0])
def test_the_printed_weight_lies_above_it(n, a):
    constants = printed_tight(
        scores=[DotProduct(a)], norm=1.0, output_lipschitz=1.0, num_heads=1
    )
    relaxed = constants.attention_weight(n)
    assert largest_weight(a, n) <= relaxed
    assert relaxed.log_value == pytest.approx(2 * a - math.log(n - 1), abs=1e-13)


def test_it_agrees_with_fifty_digits_where_floats_cancel():
    with mpmath.workdps(50):
        for a, n in ((1e-9, 3), (17.0, 10**12), (300.0, 10**6)):
            exact = 1 / (1 + (n - 1) * mpmath.exp(-2 * mpmath.mpf(a)))
            log_value = largest_weight(a, n).log_value
            assert log_value >= mpmath.log(exact)
            assert log_value == pytest.approx(float(mpmath.log(exact)), rel=1e-15)
