"""Scores as norms bound them: the range of their logits, and the temperature."""

from fractions import Fraction

import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    influence_recursion,
)
from bounds.numbers.interval import interval, upper


def test_a_constant_logit_has_no_slope():
    assert DotProduct(0.0) == DotProduct(0.0, 0.0)
    layer = LayerConstants(1.0, (HeadConstants(DotProduct(0.0), 1.0),), 0.0)
    change = influence_recursion([layer], 4, 1.0)[-1]
    assert change.others.value == pytest.approx(0.25, rel=1e-15)
    assert change.own.value == pytest.approx(0.25, rel=1e-15)


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_a_logit_moves_by_at_most_twice_the_magnitude(kind):
    """However far the query moves, and whatever all keys share is no exception."""
    rng, norm, farthest = np.random.default_rng(0), 3.0, 0.0
    u1, u2, u = rng.normal(size=(4, 4)), 1e-3 * rng.normal(size=(4, 4)), np.ones(4)
    if kind == "dot":
        score = DotProduct(float(np.linalg.norm(u1.T @ u2, 2)))
        logit = lambda y, w: (u1 @ y) @ (u2 @ w)
    else:
        sizes = [float(2 * np.linalg.norm(x, 2)) for x in (u1, u2)]
        score = Additive(*sizes, 4.0)
        logit = lambda y, w: u @ np.tanh(u1 @ y + u2 @ w)
    most = 2 * upper(score.magnitude(interval(norm)))
    for _ in range(500):
        rows = rng.normal(size=(4, 4))
        y, new_y, w, new_w = norm * rows / np.linalg.norm(rows, axis=1)[:, None]
        if kind == "additive":
            new_y = -y
        moved = abs(logit(new_y, new_w) - logit(y, w))
        assert moved <= most * (1 + 1e-12)
        farthest = max(farthest, moved)
    # It is not vacuous: some pair comes within a factor of two.
    assert farthest > most / 2


@pytest.mark.parametrize("tau", [0.1, 1 / 3, 1.0, 7.0])
def test_temperature_divides_the_logits(tau):
    for score in (DotProduct(0.3, 0.1), Additive(0.2, 0.7, 1.5)):
        cooled = score.at_temperature(tau)
        for name in vars(score):
            exact = Fraction(getattr(score, name)) / Fraction(tau)
            found = Fraction(getattr(cooled, name))
            assert exact <= found <= exact * (1 + Fraction(2**-52))
