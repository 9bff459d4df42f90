"""Numbers of roundings are those counted by hand, and bound what they are of."""

from fractions import Fraction

import jax
import numpy as np
import pytest

from bounds.numbers import interval
from bounds.numbers.rounding import (
    certificate_roundoff,
    gamma,
    gamma_upper,
    layer_roundoff,
    rounding_steps,
    summation_depth,
    term_roundoff,
    tiled_summation,
    unit_roundoff,
)
from tests.architecture import small_model

SIZES = {"num_layers": 2, "num_heads": 2, "d_model": 4, "d_ff": 6, "vocab_size": 2}


def test_the_unit_roundoff_is_half_the_distance_of_neighbours():
    assert unit_roundoff(np.float64) == 2.0**-53
    assert unit_roundoff(np.float32) == 2.0**-24
    for dtype in (np.float32, np.float64):
        u = dtype(unit_roundoff(dtype))
        assert dtype(1) + u == dtype(1)
        assert dtype(1) + 2 * u > dtype(1)


def test_gamma_is_rounded_up_to_the_next_float_and_no_further():
    """Against k u/(1 - k u) in rationals."""
    for count in [*range(1, 200), 10**4 + 1, 10**9 + 7, 2**52]:
        ku = Fraction(count, 2**53)
        found = gamma_upper(count)
        below = Fraction(float(np.nextafter(found, 0)))
        assert below < ku / (1 - ku) <= Fraction(found)


def test_the_steps_of_a_certificate_are_those_counted_by_hand():
    """Two heads of width 2 at d = 4, six neurons, a score of 3, 100 keys, two layers."""
    # Rounding is counted from shapes alone.
    model = jax.eval_shape(lambda: small_model(0, **SIZES))
    assert summation_depth(100) == 101
    assert summation_depth(3 * 8192) == 8195
    # A layer: keys, scalars, projections to and from d, queries, heads, neurons.
    layer = 101 + 16 + 2 * 4 + 2 + 4 + 6
    assert rounding_steps(model, 100) == 2 * layer + 16
    twice = 2.0**-52
    found = float(layer_roundoff(model.layers[0], 101, 3.0))
    assert found == pytest.approx(twice * (layer + 3), rel=1e-12, abs=0)
    assert term_roundoff(10) == gamma_upper(36)
    # A radius: weights twice and their sums, an exponential, norms by squaring.
    each = 3 + 300 + 3 * 101 + (8 + 2 * 4) * 4 + 64
    steps = 3 * each + rounding_steps(model, 100)
    assert certificate_roundoff(model, 100, 3.0, 300.0) == twice * steps


def test_a_sum_in_tiles_is_as_deep_as_counted_by_hand():
    """A tile of √(6 n) additions, and six for each of the tiles."""
    found = [tiled_summation(n) for n in (1, 2, 100, 10**5)]
    assert found == [(1, 7), (2, 8), (25, 49), (775, 1555)]


def test_gamma_bounds_a_sum_that_loses_all_it_can():
    """1 + u rounds to 1 every time, so that k steps lose k u and no less holds."""
    count, u = 1000, Fraction(1, 2**53)
    total = 1.0
    for _ in range(count):
        total += float(u)
    lost = Fraction(1 + count * u - Fraction(total)) / (1 + count * u)
    bound = Fraction(interval.upper(gamma(count)))
    assert lost <= bound <= lost * (1 + 3 * count * u)
