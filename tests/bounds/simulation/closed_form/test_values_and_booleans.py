"""What weights do to values, rounding of approximate Booleans, and the amplifier."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from bounds.simulation import closed_form as closed
from tests.bounds.simulation.closed_form.rows import Ratios, log_uniform

QUARTERS = [Fraction(k, 64) for k in range(-40, 120)]


def test_values_move_by_at_most_half_the_distance_of_the_weights():
    """20,000 pairs of weights and values; two extreme values attain it."""
    rng, ratios = np.random.default_rng(2), Ratios()
    for _ in range(200):
        n = int(rng.integers(2, 20))
        alpha, beta = rng.dirichlet(np.full(n, 0.3), 2)
        values = rng.uniform(0, 1, (100, n))
        values[0] = alpha > beta
        values[1:, :2] = 0, 1
        distance = np.abs(alpha - beta).sum()
        spread = np.ptp(values, axis=1)
        # Rounding of a sum of n products of numbers up to 1.
        truth = np.abs(values @ (alpha - beta)) - 4 * n * 2.0**-53
        bound = closed.value_transfer(1.0, float(distance) * (1 + n * 2.0**-52))
        ratios.add(np.maximum(truth, 0) / spread, bound.value)
    assert ratios.cases >= 20_000
    assert not ratios.violations
    assert ratios.largest > 0.98


def relu(x):
    return max(x, Fraction(0))


def rounded(x, low, high):
    return (relu(x - low) - relu(x - high)) / (high - low)


@pytest.mark.parametrize(("low", "high"), [(0.25, 0.75), (0.125, 0.5), (0.0, 1.0)])
def test_rounding_is_as_wrong_as_its_bound_and_not_more(low, high):
    """All multiples of 1/64 as inputs, in exact rationals."""
    t0, t1 = Fraction(low), Fraction(high)
    for error in (e for e in QUARTERS if e >= 0):
        bound = Fraction(closed.rounding_error(float(error), low, high).value)
        inputs = [(b + sign * error, b) for b in (0, 1) for sign in (-1, 1)]
        truth = max(abs(rounded(x, t0, t1) - b) for x, b in inputs)
        assert truth <= bound
        assert bound - truth < Fraction(1, 2**50)
        if error <= min(t0, 1 - t1):
            assert bound == 0


@pytest.mark.parametrize("gates", [0, 1, 2])
def test_gated_rounding_rounds_or_is_silent(gates):
    for error in (e for e in QUARTERS if e >= 0):
        bound = Fraction(closed.gated_rounding_error(float(error), gates).value)

        def gated(x):
            x = 2 * x - 2 * gates
            return relu(x - Fraction(1, 2)) - relu(x - Fraction(3, 2))

        if gates:
            truth = max(gated(x) for x in (*QUARTERS, 1 + error) if x <= 1 + error)
        else:
            truth = max(abs(gated(b + s * error) - b) for b in (0, 1) for s in (-1, 1))
        assert truth <= bound
        assert bound - truth < Fraction(1, 2**50)
    assert closed.gated_rounding_error(0.25, gates).value == 0


def pieces(outputs):
    """Affine pieces of the interpolant of a table, equal slopes joined."""
    steps = [b - a for a, b in itertools.pairwise(outputs)]
    return len([step for step, _ in itertools.groupby(steps)])


def truncated(p, r):
    return [k >> (p - r) for k in range(2**p)]


@pytest.mark.parametrize(("p", "r"), [(3, 2), (4, 2), (5, 3), (6, 3)])
def test_truncation_takes_as_many_pieces_as_the_sharper_form_says(p, r):
    outputs = truncated(p, r)
    assert min(map(outputs.count, outputs)) >= 2
    assert pieces(outputs) == 2 ** (r + 1) - 1
    # One hidden layer of width m has (2m)^1 pieces at most.
    width = closed.rounding_width(r, 1, "all").value
    assert width == pytest.approx((2 ** (r + 1) - 1) / 2, rel=1e-15)
    assert width <= pieces(outputs) / 2
    assert closed.rounding_width(r, 1, "all_but_largest") <= closed.rounding_width(
        r, 1, "all"
    )


def test_half_even_rounding_has_no_second_preimage():
    """3 bits to 2: one output has one preimage, and fewer pieces than 2^3 - 1 do."""
    outputs = [0, 0, 1, 2, 2, 2, 3, 3]
    assert outputs.count(1) == 1
    assert pieces(outputs) < 2**3 - 1
    with pytest.raises(ValueError, match="preimages is 'one'"):
        closed.rounding_width(2, 1, "one")


def test_depth_takes_the_root_of_the_width():
    assert closed.rounding_width(8, 2, "all_but_largest").value == pytest.approx(8)


def wrong_share(scores, even_is_right):
    """The weight of the wrong parity, positions 1 … n, by exact exponentials."""
    weights = np.exp(scores - scores.max())
    odd = weights[0::2].sum()
    even = weights[1::2].sum()
    return (odd if even_is_right else even) / (odd + even)


@pytest.mark.parametrize(
    ("lengths", "numbers"),
    [
        (range(2, 400, 13), 20),
        # More than 20,000 cases.
        pytest.param(range(2, 400), 51, marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_the_amplifier_is_as_wrong_as_its_lemma_says(lengths, numbers):
    rng, ratios = np.random.default_rng(4), Ratios()
    for n in np.repeat(lengths, numbers).tolist():
        y = log_uniform(rng, 0.05, 5) * rng.choice([-1, 1])
        scores = y * (-1.0) ** np.arange(1, n + 1)
        ratios.add(wrong_share(scores, y > 0), closed.amplifier_weight(y, n).value)
    assert not ratios.violations
    assert ratios.largest > 0.999
    assert ratios.cases == len(lengths) * numbers


@pytest.mark.parametrize(
    ("lengths", "numbers"),
    [
        (range(2, 200, 7), range(-8, 9)),
        pytest.param(range(2, 600), range(-17, 18), marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_the_growing_amplifier_needs_no_temperature(lengths, numbers):
    """c = 2 log 8: true at least 4/5, false at most 1/9, as the reduction needs."""
    ratios, c = Ratios(), 2 * np.log(8)
    for i in lengths:
        j = np.arange(1, i + 1)
        for number in numbers:
            scores = c * (number - 0.5) / i * j * (-1.0) ** j
            bound = closed.growing_amplifier_weight(c, number, i).value
            ratios.add(wrong_share(scores, number >= 1), bound)
            assert bound <= (0.2 if number >= 1 else 1 / 9) * (1 + 1e-15)
    assert not ratios.violations
    # The bound drops a factor e^{-|y|} that only short rows would notice.
    assert ratios.largest > 0.98
