"""The printed constants: their formulas, and when the claims follow from C2."""

import math
from fractions import Fraction
from typing import Any

import mpmath as _mpmath
import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    growth_constant,
    influence_recursion,
    printed,
    printed_shape_bound,
    printed_tight,
    uniform_constants,
)
from bounds.numbers.bound import Claim

# Checkers take every mpmath number for a complex one.
mpmath: Any = _mpmath


def random_model(rng, scores):
    """Uniform layers with these scores, and both readings of their constants."""
    norm, lipschitz = 10.0 ** rng.uniform(-1, 1, size=2)
    heads, depth = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    layer = LayerConstants(norm, (HeadConstants(scores, lipschitz),) * heads, lipschitz)
    uniform = uniform_constants([layer] * depth)
    given: Any = {"scores": [scores], "output_lipschitz": lipschitz, "num_heads": heads}
    literal = printed(**given, embedding_norm=norm, growth=1.0, num_layers=depth)
    return uniform, literal, printed_tight(**given, norm=norm)


def follows(claim, bound):
    """Whether a proved bound on the same quantity makes a claim true."""
    assert isinstance(claim, Claim)
    assert (claim.quantity, claim.sense) == (bound.quantity, bound.sense)
    return bound.log_value <= claim.log_value


def random_dot(rng):
    return DotProduct(*(10.0 ** rng.uniform(-3, 1.5, size=2)))


def random_additive(rng):
    return Additive(*(10.0 ** rng.uniform(-3, 1.5, size=3)))


@pytest.mark.parametrize("draw", [random_dot, random_additive])
@pytest.mark.parametrize("seed", range(40))
def test_the_literal_claim_off_i_always_follows_from_c2(draw, seed):
    rng = np.random.default_rng(seed)
    uniform, literal, tight = random_model(rng, draw(rng))
    depth, n = uniform.num_layers, int(10 ** rng.uniform(0.31, 9))
    proved = printed_shape_bound(uniform, n, 1.0)
    assert follows(literal.others(depth, n, 1.0), proved.others)
    if uniform.num_heads == 1:
        assert follows(literal.own(depth, 1.0), proved.own)
    # So does the tight one for additive scores, and for dot products of small A.
    a = uniform.half_oscillation
    small = 3 * (1 + a) <= 16 * (1 + math.exp(-2 * a))
    if draw is random_additive or small:
        assert follows(tight.others(depth, n, 1.0), proved.others)


def test_the_tight_claim_does_not_follow_for_large_a():
    score = DotProduct(10.0)
    layer = LayerConstants(1.0, (HeadConstants(score, 1 + math.exp(20)),), 0.0)
    tight = printed_tight(
        scores=[score], norm=1.0, output_lipschitz=1 + math.exp(20), num_heads=1
    )
    claim = tight.others(1, 10**12, 1.0)
    proved = printed_shape_bound(uniform_constants([layer]), 10**12, 1.0)
    assert not follows(claim, proved.others)
    assert not follows(claim, influence_recursion([layer], 10**12, 1.0)[-1].others)


@pytest.mark.parametrize(
    "scores",
    [
        [DotProduct(0.2, 0.3)],
        [Additive(0.5, 0.2, 9.0)],
        [DotProduct(0.1), Additive(0.1, 0.9, 1.0)],
    ],
    ids=["dot", "additive", "several"],
)
def test_the_formulas_with_fifty_digits(scores):
    growth, embedding, lipschitz, heads, depth, n = 1.25, 1.5, 0.75, 3, 4, 1000
    with mpmath.workdps(50):
        f = 2 * mpmath.mpf(growth) ** depth * mpmath.mpf(embedding)
        a = mpmath.mpf(0)
        for s in scores:
            if isinstance(s, DotProduct):
                a = max(a, f**2 * (mpmath.mpf(s.mu) + mpmath.mpf(s.c) / f))
            else:
                a = max(a, 2 * f * max(mpmath.mpf(s.m1), mpmath.mpf(s.m2)))
        c = 2 * (1 + mpmath.exp(2 * a) + lipschitz)
        expected = {
            "others": mpmath.log(heads**2 * c**4 * mpmath.mpf(0.3) / n),
            "own": mpmath.log(c**4 * mpmath.mpf(0.3)),
        }
    given: Any = {"scores": scores, "output_lipschitz": lipschitz, "num_heads": heads}
    norms: Any = {"embedding_norm": embedding, "growth": growth, "num_layers": depth}
    constants = printed(**given, **norms)
    found = {"others": constants.others(2, n, 0.3), "own": constants.own(2, 0.3)}
    for name, statement in found.items():
        assert statement.log_value >= expected[name]
        assert statement.log_value == pytest.approx(float(expected[name]), rel=1e-15)
    assert constants.reading == "printed"


def test_the_least_growth_constant_covers_every_layer():
    norms = [1.5, 0.5, 6.0, 11.0]
    growth = growth_constant(1.5, norms[1:])
    assert growth == pytest.approx(2.0, rel=1e-15)
    assert all(Fraction(growth) ** k * 1.5 >= f for k, f in enumerate(norms))
    assert growth_constant(2.0, [1.0, 0.5]) == 1.0
    assert growth_constant(0.0, [0.0]) == 1.0
    with pytest.raises(ValueError, match=r"embedding_norm is 0\.0"):
        growth_constant(0.0, [1.0])
