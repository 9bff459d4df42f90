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
    Reading,
    growth_constant,
    influence_recursion,
    printed,
    printed_shape_bound,
    printed_tight,
    uniform_constants,
)
from bounds.numbers.bound import Bound, Claim

# Checkers take every mpmath number for a complex one.
mpmath: Any = _mpmath


def random_model(rng, scores):
    """Uniform layers with these scores, and both readings of their constants."""
    norm, lipschitz = 10.0 ** rng.uniform(-1, 1, size=2)
    heads, depth = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    layer = LayerConstants(norm, (HeadConstants(scores, lipschitz),) * heads, lipschitz)
    uniform = uniform_constants([layer] * depth)
    literal = printed(
        scores=[scores],
        embedding_norm=norm,
        growth=1.0,
        output_lipschitz=lipschitz,
        num_heads=heads,
        num_layers=depth,
    )
    tight = printed_tight(
        scores=[scores], norm=norm, output_lipschitz=lipschitz, num_heads=heads
    )
    return uniform, literal, tight


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
    claim = literal.others(depth, n, 1.0)
    assert isinstance(claim, Claim)
    assert claim.implied_by(proved.others)
    if uniform.num_heads == 1:
        assert literal.own(depth, 1.0).implied_by(proved.own)
    # So does the tight one for additive scores, and for dot products of small A.
    a = uniform.half_oscillation
    small = 3 * (1 + a) <= 16 * (1 + math.exp(-2 * a))
    if draw is random_additive or small:
        assert tight.others(depth, n, 1.0).implied_by(proved.others)


def test_the_tight_claim_does_not_follow_for_large_a():
    score = DotProduct(10.0)
    layer = LayerConstants(1.0, (HeadConstants(score, 1 + math.exp(20)),), 0.0)
    tight = printed_tight(
        scores=[score], norm=1.0, output_lipschitz=1 + math.exp(20), num_heads=1
    )
    claim = tight.others(1, 10**12, 1.0)
    assert not claim.implied_by(
        printed_shape_bound(uniform_constants([layer]), 10**12, 1.0).others
    )
    assert not claim.implied_by(influence_recursion([layer], 10**12, 1.0)[-1].others)


def test_the_threshold_of_the_tight_claim():
    root = mpmath.findroot(lambda a: 3 * (1 + a) - 16 * (1 + mpmath.exp(-2 * a)), 4.3)
    assert f"{float(root):.3f}" == "4.334"


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
            "weight": mpmath.log(mpmath.exp(2 * a) / (n - 1)),
        }
    constants = printed(
        scores=scores,
        embedding_norm=embedding,
        growth=growth,
        output_lipschitz=lipschitz,
        num_heads=heads,
        num_layers=depth,
    )
    found = {
        "others": constants.others(2, n, 0.3),
        "own": constants.own(2, 0.3),
        "weight": constants.attention_weight(n),
    }
    for name, statement in found.items():
        assert statement.log_value >= expected[name]
        assert statement.log_value == pytest.approx(float(expected[name]), rel=1e-15)
    assert isinstance(found["weight"], Bound)
    assert constants.reading is Reading.PRINTED


def test_the_small_model_of_the_literature_comparison():
    """A = .193, L_f = 1.089, D = .704, H = 1, L = 2 at n = 10^6: log10 = -1.6.

    With norms at most 1 and the literal F = 2 the printed A is 4 · .193 = .772, so
    C = 2 (1 + e^1.544 + 1.089) = 13.54 and C^4 D/n = 33650 · .704e-6 = 10^-1.63.
    """
    constants = printed(
        scores=[DotProduct(0.193)],
        embedding_norm=1.0,
        growth=1.0,
        output_lipschitz=1.089,
        num_heads=1,
        num_layers=2,
    )
    assert constants.others(2, 10**6, 0.704).log10_value == pytest.approx(
        -1.63, abs=5e-3
    )


def test_for_a_small_model_the_recursion_is_useful_where_the_claim_is_not():
    """The same A and L_f, omega = 1/4: n K_2(n) is flat, and 4 decades are between."""
    layer = LayerConstants.residual(
        norm=1.0, scores=[DotProduct(0.193)], omegas=[0.25], block_lipschitz=1.089
    )
    scaled = [
        n * influence_recursion([layer] * 2, n, 1.0, saturating=False)[-1].others.value
        for n in (10**2, 10**3, 10**6)
    ]
    assert max(scaled) / min(scaled) < 1.005
    proved = influence_recursion([layer] * 2, 10**6, 0.704)[-1].others
    assert proved.log10_value < -1.63 - 4


@pytest.mark.parametrize(("depth", "mu"), [(1, 0.5), (2, 20.0), (3, 20.0)])
def test_the_pattern_of_the_closed_forms(depth, mu):
    """C2 < tight < literal; at large A their exponents are 2AL, 4AL and 16AL.

    One F for all layers, and C_fact^L (|p| + |v|) equal to it: the mildest literal F.
    """
    norm, n, distance = 2.0, 2048, 0.5
    score = DotProduct(mu)
    layer = LayerConstants.residual(
        norm=norm, scores=[score], omegas=[0.5], block_lipschitz=1.5, output_cap=8.0
    )
    uniform = uniform_constants([layer] * depth)
    shared: Any = {
        "scores": [score],
        "output_lipschitz": uniform.output_lipschitz,
        "num_heads": 1,
    }
    tight = printed_tight(norm=norm, **shared)
    literal = printed(embedding_norm=norm, growth=1.0, num_layers=depth, **shared)
    statements = (
        influence_recursion([layer] * depth, n, distance)[-1].others,
        printed_shape_bound(uniform, n, distance).others,
        tight.others(depth, n, distance),
        literal.others(depth, n, distance),
    )
    sizes = [x.log10_value for x in statements]
    assert sizes == sorted(sizes)
    if mu == 20:
        assert 1.9 < sizes[2] / sizes[1] < 2.05
        assert 7.5 < sizes[3] / sizes[1] < 8.1
        # The recursion says far less: it has no exponential but in one weight.
        assert sizes[0] < 6 < 100 < sizes[1]


def test_the_least_growth_constant_covers_every_layer():
    norms = [1.5, 0.5, 6.0, 11.0]
    growth = growth_constant(1.5, norms[1:])
    assert growth == pytest.approx(2.0, rel=1e-15)
    assert all(Fraction(growth) ** k * 1.5 >= f for k, f in enumerate(norms))
    assert growth_constant(2.0, [1.0, 0.5]) == 1.0
    assert growth_constant(0.0, [0.0]) == 1.0
    with pytest.raises(ValueError, match=r"embedding_norm is 0\.0"):
        growth_constant(0.0, [1.0])
