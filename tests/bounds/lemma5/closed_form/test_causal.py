"""Causal attention in closed form: exact averages, and a bound with its logarithm."""

import math
from fractions import Fraction

import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    causal_bound,
    masked_recursion,
    scaled_causal_average_influence,
)

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
        sums, total = [], Fraction(0)
        for j, value in enumerate(row, start=1):
            total += value
            sums.append(total / j)
        row = sums
    return n * row[-1]


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_the_closed_form_of_causal_averaging_is_exact(n, depth):
    assert scaled_causal_average_influence(n, depth) == float(averaged(n, depth))


@pytest.mark.parametrize(
    ("n", "two", "three"),
    [
        (64, "4.7439", "12.067"),
        (256, "6.1243", "19.574"),
        (1024, "7.5092", "29.016"),
        (4096, "8.8951", "40.384"),
    ],
)
def test_the_harmonic_numbers(n, two, three):
    """H_n, and (H_n² + H_n^(2))/2 by its own summation."""
    j = np.arange(1, n + 1)
    harmonic, squares = math.fsum(1 / j), math.fsum(1 / j**2)
    assert scaled_causal_average_influence(n, 1) == 1.0
    found = scaled_causal_average_influence(n, 2)
    assert found == pytest.approx(harmonic, rel=1e-14)
    assert f"{found:.4f}" == two
    found = scaled_causal_average_influence(n, 3)
    assert found == pytest.approx((harmonic**2 + squares) / 2, rel=1e-14)
    assert f"{found:.3f}" == three


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(("n", "position"), [(2, 0), (40, 7), (40, 38), (4000, 0)])
@pytest.mark.parametrize("layer", [LAYER, UNEVEN], ids=["even", "uneven"])
def test_the_bound_dominates_the_recursion_it_is_derived_from(
    layer, depth, n, position
):
    layers = [layer] * depth
    linear = masked_recursion(
        layers, ["future"] * depth, n, 0.5, position=position, saturating=False
    )
    bound = causal_bound(layers, n, position, 0.5)
    assert linear.others(-1).log_value <= bound.others.log_value + 1e-12
    assert linear.own().log_value <= bound.own.log_value + 1e-12


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
