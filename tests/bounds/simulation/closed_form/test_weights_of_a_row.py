"""No row of scores is farther from hard attention than its lemma says.

Every lemma meets at least 20,000 random rows, half of which are its worst case but for
the length; where the lemma is tight, the largest ratio of truth and bound is near 1 and
half of its constant would be caught.
"""

import math

import numpy as np
import pytest

from bounds.simulation import closed_form as closed
from tests.bounds.simulation.closed_form.rows import (
    ROWS,
    SETTINGS,
    Ratios,
    distance,
    extra,
    log_uniform,
    softmax,
)


def constant_gap(rng):
    n, gap = int(rng.integers(2, 60)), log_uniform(rng, 0.01, 10)
    tau = gap / log_uniform(rng, 0.1, 200)
    deficits = gap * (1 + extra(rng, (ROWS, n)))
    deficits[np.arange(ROWS), rng.integers(0, n, ROWS)] = 0
    return distance(deficits, tau), closed.constant_gap_distance(gap, tau, n)


def places(rng, n):
    """Distances |j - j*| of random winners [rows, n]."""
    return np.abs(np.arange(n) - rng.integers(0, n, (ROWS, 1)))


def decay(power, lemma):
    """Deficits that grow with a power of the distance."""

    def draw(rng):
        n, slope = int(rng.integers(1, 60)), log_uniform(rng, 0.01, 10)
        k = places(rng, n)
        return distance(slope * k**power * (1 + extra(rng, k.shape)), 1.0), lemma(slope)

    return draw


def one_sided(rng):
    n, slope = int(rng.integers(1, 60)), log_uniform(rng, 0.01, 10)
    tau = log_uniform(rng, 0.1, 10)
    k = np.broadcast_to(np.arange(n), (ROWS, n))
    truth = distance(slope * k * (1 + extra(rng, k.shape)), tau)
    return truth, closed.one_sided_decay_distance(slope, tau)


def multiples(rng):
    n, step = int(rng.integers(1, 60)), log_uniform(rng, 0.01, 10)
    k = places(rng, n).astype(float)
    left = np.arange(n) < k.argmin(axis=-1)[:, None]
    # In half of the rows other distinct multiples, in any order on each side.
    for row in range(0, ROWS, 2):
        for side in (left[row], ~left[row] & (k[row] > 0)):
            k[row, side] = 1 + rng.permutation(int(side.sum()) + 3)[: side.sum()]
    truth = distance(step * k * (1 + extra(rng, k.shape)), 1.0)
    return truth, closed.distinct_multiples_distance(step)


def tied(rng, n):
    """Deficits of tied scores, in gaps [rows, n]; every row has a maximiser."""
    at_top = rng.random((ROWS, n)) < rng.random((ROWS, 1)) ** 2
    at_top[np.arange(ROWS), rng.integers(0, n, ROWS)] = True
    return np.where(at_top, 0.0, 1 + extra(rng, (ROWS, n)))


def broken(deficits, kind):
    """The same from the winner on once the term is added, in steps of the term.

    In steps the term's differences are integers, or quotients of them: nothing cancels.
    """
    n = deficits.shape[1]
    at_top = deficits == 0
    first, last = at_top.argmax(1), n - 1 - at_top[:, ::-1].argmax(1)
    winner = (first if kind == "leftmost" else last)[:, None] + 1
    j = np.arange(1, n + 1)[None]
    if kind == "reciprocal":
        return deficits * n**2 + n**2 * (winner - j) / (j * winner)
    return deficits * n + (winner - j) * (-1 if kind == "leftmost" else 1)


def tie_break(kind):
    def draw(rng):
        n, gap = int(rng.integers(1, 60)), log_uniform(rng, 0.01, 10)
        steps = n**2 if kind == "reciprocal" else n
        exponent = log_uniform(rng, 0.05, 200)
        lemma = getattr(closed, f"{kind}_tie_break")
        truth = distance(broken(tied(rng, n), kind), 1 / exponent)
        return truth, lemma(gap, n, gap / steps / exponent)

    return draw


def boolean_tie(rng):
    n, sharpness = int(rng.integers(1, 60)), log_uniform(rng, 0.05, 10)
    booleans = rng.random((ROWS, n)) < rng.random((ROWS, 1))
    scores = n * booleans + np.arange(1, n + 1.0)
    deficits = sharpness * (scores.max(axis=-1, keepdims=True) - scores)
    winner = np.where(booleans.any(1), n - 1 - booleans[:, ::-1].argmax(1), n - 1)
    assert (deficits[np.arange(ROWS), winner] == 0).all()
    return distance(deficits, 1.0), closed.boolean_tie_break(sharpness)


def perturbed(rng, tieless=False):
    n, gap = int(rng.integers(2, 30)), log_uniform(rng, 0.01, 10)
    tau = gap / log_uniform(rng, 1, 30)
    rho = float(rng.choice([0, rng.uniform(0, 0.5) * gap, rng.uniform(0, 2) * tau]))
    rho = min(rho, 0.499 * gap)
    k = 1 if tieless else int(rng.integers(1, n + 1))
    deficits = gap * (1 + extra(rng, (ROWS, n)))
    deficits[:, :k] = 0
    # The worst case: others up, and of the tied some up and some down.
    up = np.where(np.arange(n) < k, rng.integers(0, 2, (ROWS, n)) * 2 - 1, 1)
    if tieless:
        up[:, 0] = -1
    move = np.where(rng.random((ROWS, 1)) < 0.5, up, rng.uniform(-1, 1, (ROWS, n)))
    weights = softmax((rho * move - deficits) / tau)
    hard = np.where(np.arange(n) < k, 1 / k, 0.0)
    away = np.abs(weights - hard).sum(axis=-1)
    if tieless:
        away = 2 * weights[:, 1:].sum(axis=-1)
        return away, closed.perturbed_distance(gap, rho, tau, n)
    # Weights sum to 1 and are rounded by at most 128 u relatively: exponents that matter
    # are below 30 and carry three roundings, a sum fewer than 30. 1/k cancels the rest.
    away = np.maximum(away - 128 * 2.0**-53, 0.0)
    return away, closed.perturbed_ties_distance(gap, rho, tau, n, k)


LEMMAS = {
    "5'": (constant_gap, 0.98),
    "6": (decay(1, closed.linear_decay_distance), 0.98),
    "6 one-sided": (one_sided, 0.98),
    "6'": (multiples, 0.98),
    "6 quadratic": (decay(2, closed.quadratic_decay_distance), 0.98),
    "8a": (tie_break("reciprocal"), 0.9),
    "8b": (tie_break("rightmost"), 0.98),
    "8c": (tie_break("leftmost"), 0.98),
    "8d": (boolean_tie, 0.98),
    "33": (lambda rng: perturbed(rng, tieless=True), 0.98),
    "33-T": (perturbed, 0.98),
}


@pytest.mark.parametrize("lemma", LEMMAS)
def test_no_row_is_farther_than_the_lemma_says(lemma):
    draw, tight = LEMMAS[lemma]
    rng, ratios = np.random.default_rng(7), Ratios()
    halved = 0
    for _ in range(SETTINGS):
        truth, bound = draw(rng)
        value = max(bound.value, math.ulp(0.0))
        ratios.add(truth, value)
        halved += int((truth > value / 2).sum())
    assert ratios.cases >= 20_000
    assert not ratios.violations, ratios.largest
    assert ratios.largest >= tight
    # A constant of half the size would be caught.
    assert halved


def test_a_constant_gap_keeps_the_error_up_to_its_temperature_and_no_farther():
    """Both directions of Lemma 5' at its own temperature."""
    rng = np.random.default_rng(3)
    for n, gap, eps in [
        (1000, 0.3, 0.01),
        *(
            (int(rng.integers(2, 200)), rng.uniform(0.1, 5), rng.uniform(1e-3, 0.9))
            for _ in range(100)
        ),
    ]:
        tau = closed.constant_gap_temperature(gap, n, eps).value
        deficits = np.full((1, n), gap)
        deficits[0, 0] = 0
        assert distance(deficits, tau)[0] == pytest.approx(eps, rel=1e-12)
        assert distance(deficits, tau * 1.001)[0] > eps


def test_a_row_of_one_position_has_no_error():
    assert closed.constant_gap_distance(1.0, 0.1, 1).value == 0
    assert closed.perturbed_distance(1.0, 0.1, 0.1, 1).value == 0


def head_error(g, beta, b):
    """The largest error of a head with scores g + beta b over all Booleans v [rows]."""
    weights = softmax(g + beta * b)
    winner = b.shape[-1] - 1 - b[..., ::-1].argmax(-1)
    return 1 - np.take_along_axis(weights, winner[..., None], -1)[..., 0]


def test_a_head_with_a_smaller_range_breaks_some_tie_wrongly():
    """Lemma 8-lower, 20,000 random score terms; one of twice the range would do."""
    rng, cases, good = np.random.default_rng(5), 0, 0
    for _ in range(SETTINGS):
        i = int(rng.integers(2, 20))
        least = closed.tie_break_range(i).value
        steps = rng.exponential(1, (ROWS, i - 1))
        g = np.concatenate([np.zeros((ROWS, 1)), np.cumsum(steps, 1)], 1)
        g *= least * rng.uniform(0.5, 0.999) / g[:, -1:]
        pairs = np.eye(i, dtype=int)[:-1] + np.eye(i, dtype=int)[1:]
        worst = np.stack([head_error(g, 1e3, np.tile(b, (ROWS, 1))) for b in pairs])
        assert (worst.max(axis=0) > 0.25).all()
        cases += ROWS
        wide = 2 * least * np.arange(i)[None] / (i - 1)
        errors = [head_error(wide, 1e3, b[None])[0] for b in pairs]
        good += max(errors) <= 0.25
    assert cases >= 20_000
    assert good == SETTINGS


@pytest.mark.parametrize("approximation", ["direct", "cubic"])
def test_a_lookup_misses_by_no_more_than_its_lemma_says(approximation):
    rng, error, weight = np.random.default_rng(1), Ratios(), Ratios()
    for _ in range(SETTINGS):
        g = rng.uniform(0.5, 6)
        i = rng.integers(1, 60, ROWS)
        least = 1 if approximation == "direct" else (i + 1) // 2
        c = rng.integers(least, i + 1)
        j = np.arange(1, 60)[None]
        decay = (j - c[:, None]) ** 2
        if approximation == "direct":
            bounds = closed.lookup_error(g), closed.lookup_weight(g)
        else:
            bounds = closed.cubic_lookup_error(2 * g), closed.cubic_lookup_weight(2 * g)
            decay = 2 * decay * (c[:, None] + 2 * j) / i[:, None]
        weights = np.where(j <= i[:, None], np.exp(-g * decay), 0.0)
        total = weights.sum(1)
        error.add(np.abs((weights * (j - c[:, None])).sum(1)) / total, bounds[0].value)
        missed = np.where(j == c[:, None], 0.0, weights).sum(1) / total
        weight.add(missed, bounds[1].value)
    assert error.cases >= 20_000
    assert not error.violations
    assert not weight.violations
    if approximation == "direct":
        assert error.largest > 0.9
        assert weight.largest > 0.98


def test_bounds_keep_their_digits_where_exponentials_underflow():
    bound = closed.constant_gap_distance(1.0, 1e-4, 1001)
    assert bound.value == pytest.approx(0.0, abs=1e-300)
    assert bound.log_value == pytest.approx(math.log(2000) - 1e4, rel=1e-14)


def test_a_temperature_is_said_to_keep_the_error_at_most_epsilon():
    said = str(closed.constant_gap_temperature(1.0, 3, 0.1))
    keeps = (
        "the largest temperature (that keeps the error at most epsilon) at least 0.27"
    )
    assert said.startswith(keeps)
