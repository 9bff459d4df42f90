"""What is said of a function that is not ours: an estimate, or what its radius leaves."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from bounds.influence.methods.function_blocks import norm_rounding
from bounds.numbers.euclidean import euclidean_norms
from bounds.numbers.kind import STATED
from tests.bounds.influence.expect import refused

TERMS = 100_000
VALUES = np.asarray([0.3, 1000.0], np.float32)


def ask(function, tokens, radius=None, **question) -> Any:
    options = {"radius": radius, "check": False, "vocab_size": 2, "batched": False}
    if isinstance(function, jax.stages.Wrapped):
        held = bounds.Callable(lambda _, tokens: function(tokens), **options)
    else:
        held = bounds.Callable(function, host=True, **options)
    return bounds.compute_influence(held, tokens, **question)


def sequential_sum(tokens):
    """The symbol's value and two long sums that cancel, one term after another."""
    terms = np.full(2 * TERMS, 1000, np.float32)
    terms[TERMS:] *= -1
    summed = np.add.accumulate(np.concatenate([VALUES[tokens[:1]], terms]))
    return summed[-1:]


def summation_radius(tokens):
    """γ_k of the sum of magnitudes, k the additions: what floats are known to keep."""
    unit, additions = 2.0**-24, 2 * TERMS
    gamma = additions * unit / (1 - additions * unit)
    return gamma * (float(VALUES[tokens[0]]) + 2 * TERMS * 1000.0)


TRUTH = float(Fraction(1000) - Fraction(float(VALUES[0])))


def test_a_sum_that_rounds_far_from_its_truth_is_not_called_exact():
    found = ask(sequential_sum, [0, 0])
    assert abs(found.max - TRUTH) > 0.2, "the case rounds too little to tell"
    assert (found.exact, found.kind) == (False, "estimated")
    assert "exact" not in repr(found)
    assert "[estimated]" in repr(found)
    # Nothing is claimed around it.
    np.testing.assert_array_equal(found.lower, found.upper)
    assert found.max_lower == found.max == found.max_upper


@pytest.mark.parametrize("radius", [summation_radius, summation_radius([1])])
def test_a_stated_radius_encloses_the_truth(radius):
    found = ask(sequential_sum, [0, 0], radius=radius)
    assert found.kind == "enclosure", "it is many times what the sum is"
    assert found.max_lower <= TRUTH <= found.max_upper
    assert found.hypotheses == (STATED,)


def test_no_change_within_a_wide_radius_is_not_called_exact():
    found = ask(lambda tokens: np.ones(2), [0, 0], radius=0.8)
    assert (found.max, found.kind) == (0.0, "enclosure")
    assert "max=0 (below 1.7) [enclosure]" in repr(found)
    found = ask(lambda tokens: np.ones(2) * tokens[0], [0, 0], radius=1e-3)
    assert found.kind == "exact"


@pytest.mark.parametrize("which", ["number", "function"])
def test_the_ends_are_two_radii_and_the_rounding_of_the_norm_away(which):
    def function(tokens):
        return np.asarray([3.0, 4.0]) * tokens[0]

    def of_tokens(tokens):
        assert tokens.shape == (2,)
        return 0.25 if tokens[0] else 0.5

    given, expected = (0.25, 0.5) if which == "number" else (of_tokens, 0.75)
    found = ask(function, [0, 0], radius=given)
    assert 5 - expected - 1e-13 < found.max_lower < 5 - expected
    assert 5 + expected < found.max_upper < 5 + expected + 1e-13


@pytest.mark.parametrize("compile_", [lambda x: x, jax.jit], ids=["plain", "jitted"])
def test_what_does_not_move_has_the_influence_zero(compile_):
    silent = compile_(lambda tokens: jnp.ones(3))
    found = ask(silent, [0, 1, 1], radius=0.0)
    assert found.max_upper == 0.0
    assert ask(silent, [0, 1, 1], radius=0.5).max_upper == pytest.approx(1.0)


def exact_square(row):
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1.0, 1e200, 1e307])
def test_the_rounding_of_a_norm_encloses_the_norm(size):
    rows = np.random.default_rng(0).normal(size=(40, 7)) * size
    norms = euclidean_norms(rows)
    rounding = norm_rounding(norms, rows.shape[1])
    for row, norm, radius in zip(rows, norms, rounding, strict=True):
        low, high = (
            Fraction(float(norm)) + s * Fraction(float(radius)) for s in (-1, 1)
        )
        assert max(low, Fraction(0)) ** 2 <= exact_square(row) <= high**2
        assert radius <= 1e-14 * norm + 5e-324


def test_a_norm_that_rounds_is_not_enclosed_without_its_rounding():
    rows = np.random.default_rng(0).normal(size=(40, 7))
    squares = [Fraction(float(norm)) ** 2 for norm in euclidean_norms(rows)]
    assert any(x != exact_square(row) for x, row in zip(squares, rows, strict=True))


NO_RADII = [-1e-9, math.nan, math.inf, "1e-9", [0.1], 10**400, True]


@pytest.mark.parametrize(
    "given", [*NO_RADII, *(lambda tokens, x=x: x for x in [*NO_RADII, None])]
)
def test_what_is_no_radius_is_refused(given):
    with refused(r"radius.* = .*at least 0"):
        ask(sequential_sum, [0, 0], radius=given)


@pytest.mark.parametrize(
    "function",
    [
        lambda tokens: np.ones((2, 2)),
        lambda tokens: np.ones(1 + tokens[0]),
        jax.jit(lambda tokens: jnp.ones((2, 2, 2))),
    ],
)
def test_what_returns_no_vector_is_refused(function):
    with refused(r"returned an array of shape .* \[m\]"):
        ask(function, [0, 1, 1])


def test_values_that_are_not_finite_are_refused_without_a_warning():
    with refused("not a finite"):
        ask(lambda tokens: np.asarray([np.inf]), [0, 1, 1])


def test_two_radii_are_not_added_to_less_than_their_sum():
    """1 + 2^-53 is 1 in floating point; a function that stays has nothing beside it."""
    small = 2.0**-53
    found = ask(
        lambda tokens: np.ones(1),
        [0, 0],
        radius=lambda tokens: small if tokens.any() else 1.0,
    )
    assert Fraction(found.max_upper) >= Fraction(1) + Fraction(small)
