"""What a layer is reduced to: products rounded up, temperature, norms, clear errors."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    concat_norm,
    influence_recursion,
    length_exponent,
    residual_norm,
    single_exponential_bound,
    uniform_constants,
)
from bounds.numbers.interval import interval, upper

SCORES = [DotProduct(0.3, 0.1), Additive(0.2, 0.7, 1.5)]


def residual(**changes):
    values: dict[str, Any] = dict(norm=2.0, scores=SCORES, omegas=[0.1, 0.3])
    values["block_lipschitz"] = 1.7
    values.update(changes)
    return LayerConstants.residual(**values)


def test_residual_gains_are_products_rounded_up():
    layer = residual(middle_gain=1.1, output_gain=0.7)
    skip = Fraction(1.7) * Fraction(1.1) * Fraction(0.7)
    assert 0 <= Fraction(layer.skip_gain) - skip < skip * Fraction(2**-52)
    for head, omega in zip(layer.heads, (0.1, 0.3), strict=True):
        gain = skip * Fraction(omega)
        assert 0 <= Fraction(head.gain) - gain < gain * Fraction(2**-51)


def test_concat_gains_are_products_rounded_up():
    layer = LayerConstants.concat(
        norm=2.0,
        scores=SCORES,
        omegas=[0.1, 1.0],
        skip_gain=0.9,
        head_lipschitz=[0.7, 3],
    )
    gains = [head.gain for head in layer.heads]
    assert Fraction(gains[0]) >= Fraction(0.1) * Fraction(0.7)
    assert gains == pytest.approx([0.07, 3.0], rel=1e-15)
    assert (layer.skip_gain, layer.input_gain, layer.output_cap) == (0.9, 1.0, math.inf)


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
def test_temperature_divides_the_logits_and_nothing_else(tau):
    layer = residual()
    cooled = layer.at_temperature(tau)
    for head, old in zip(cooled.heads, layer.heads, strict=True):
        assert head.gain == old.gain
        for name in vars(old.score):
            exact = Fraction(getattr(old.score, name)) / Fraction(tau)
            found = Fraction(getattr(head.score, name))
            assert exact <= found <= exact * (1 + Fraction(2**-52))
    for name in ("norm", "skip_gain", "input_gain", "output_cap"):
        assert getattr(cooled, name) == getattr(layer, name)
    a, b = (uniform_constants([x]).half_oscillation for x in (cooled, layer))
    assert a == pytest.approx(b / tau, rel=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_length_scaled_logits_have_the_stated_exponent(beta):
    """The slope of ln C1 against ln n, between lengths where ln n has settled."""
    head = HeadConstants(DotProduct(0.4), 1.0)
    layer = LayerConstants(1.0, (head,), 1.0)
    exponents = np.array([100.0, 300.0])
    logs = []
    for log10_n in exponents:
        log_n = log10_n * math.log(10)
        scaled = layer.at_temperature(1 / (beta * log_n)) if beta else layer
        constants = uniform_constants([scaled])
        bound = single_exponential_bound(constants, 10 ** int(log10_n), 1.0)
        logs.append(bound.others.log_value)
    slope = (logs[1] - logs[0]) / ((exponents[1] - exponents[0]) * math.log(10))
    assert slope == pytest.approx(length_exponent(0.4, beta), abs=0.01)
    assert (length_exponent(0.4, beta) < 0) == (2 * 0.4 * beta < 1)


def test_a_residual_norm_is_attained_when_everything_aligns():
    # y' = 2 (y + 0.5 y + 1) + 3 on the line, y = 4.
    bound = residual_norm(
        4.0,
        attended_norm=4.0,
        omegas=[0.25, 0.25],
        attention_offset=1.0,
        block_lipschitz=2.0,
        block_offset=3.0,
    )
    assert bound.value == pytest.approx(17.0, rel=1e-15)
    assert bound.value >= 17.0


def test_a_concat_norm_is_attained_when_everything_aligns():
    bound = concat_norm(
        4.0, skip_gain=1.5, head_lipschitz=[2.0, 1.0], omegas=[0.5, 1.0], offset=0.25
    )
    assert bound.value == pytest.approx(14.25, rel=1e-15)


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("2 scores and 1 omegas", lambda: residual(omegas=[1.0])),
        (r"omegas\[1\] is -1", lambda: residual(omegas=[1.0, -1.0])),
    ],
)
def test_bad_constants_are_refused(message, make):
    with pytest.raises(ValueError, match=message):
        make()
