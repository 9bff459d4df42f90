"""Lemma 7: against its recursion, exact enumeration, and sampled decision lists."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from bounds.restriction.closed_form.switching_lemma import deep_probability, depth_tails

PS = [Fraction(1, 20), Fraction(1, 5), Fraction(7, 20), Fraction(3, 5)]
STAR = 2  # a free bit in a restriction


def by_definition(width, num_lists, most, p, rounded=lambda x: x):
    """The recursion in plain rationals, each B_h(s) rounded as told."""
    r = 2 * p / (1 + p)
    table = {(0, s): Fraction(s <= 0) for s in range(-width, most + 1)}
    for h in range(1, num_lists + 1):
        table.update({(h, s): Fraction(1) for s in range(-width, 1)})
        for s in range(1, most + 1):
            val = [table[h - 1, s]] + [
                Fraction(1)
                if j >= s
                else min(
                    Fraction(1),
                    (2**j - 1) * table[h, s - j] + table[h - 1, s - j],
                )
                for j in range(1, width + 1)
            ]
            plain = val[0] + sum(
                math.comb(width, j) * r**j * val[j] for j in range(1, width + 1)
            )
            moebius = sum(
                math.comb(width, i)
                * r**i
                * max(
                    Fraction(0),
                    sum(
                        (-1) ** (i - j) * math.comb(i, j) * val[j] for j in range(i + 1)
                    ),
                )
                for i in range(width + 1)
            )
            bound = rounded(min(plain, moebius))
            table[h, s] = min(Fraction(1), bound, table[h, s - 1])
    return [table[num_lists, s] for s in range(most + 1)]


@pytest.mark.parametrize(("width", "num_lists"), [(1, 1), (2, 3), (3, 2), (6, 1)])
def test_every_value_is_rounded_up(width, num_lists):
    """To 3 or 30 decimals: the rounded recursion, not a rounded result."""
    p = Fraction(1, 20)
    for digits in (3, 30):
        up = lambda x, one=10**digits: Fraction(math.ceil(x * one), one)
        down = lambda x, one=10**digits: Fraction(math.floor(x * one), one)
        bounds = list(depth_tails(width, num_lists, 6, p, digits))
        assert bounds == by_definition(width, num_lists, 6, p, up)
        assert bounds != by_definition(width, num_lists, 6, p, down)
    exact = by_definition(width, num_lists, 6, p)
    for a, b in zip(exact, bounds, strict=True):
        assert abs(a - b) < Fraction(1, 10**26)


# Decision lists are drawn with many terms, as attention over many positions has them:
# a term is a tuple of (variable, satisfying value).


def random_list(rng, width, num_variables, num_terms):
    terms = []
    for _ in range(num_terms):
        size = rng.integers(1, width + 1)
        chosen = rng.choice(num_variables, size, replace=False)
        terms.append(tuple((int(v), int(rng.integers(2))) for v in chosen))
    return terms


def canonical_depth(lists, rho):
    """The depth of the canonical tree of a chain under a restriction, by its definition.

    A list without a true term ends the chain there, as the last label would.
    """
    if not lists:
        return 0
    for index, term in enumerate(lists[0]):
        if any(rho[v] not in (STAR, value) for v, value in term):
            continue
        unset = [v for v, _ in term if rho[v] == STAR]
        rest = [lists[0][index + 1 :], *lists[1:]]
        deepest = 0
        for answers in itertools.product((0, 1), repeat=len(unset)):
            answered = list(rho)
            for v, answer in zip(unset, answers, strict=True):
                answered[v] = answer
            true = all(answered[v] == value for v, value in term)
            after = lists[1:] if true else rest
            deepest = max(deepest, canonical_depth(after, answered))
        return len(unset) + deepest
    return canonical_depth(lists[1:], rho)


def exact_tail(lists, num_variables, most, p):
    """Pr[canonical depth >= s] for s = 0 … most, over all 3^n restrictions."""
    tail = [Fraction(0)] * (most + 1)
    for rho in itertools.product((0, 1, STAR), repeat=num_variables):
        stars = rho.count(STAR)
        weight = p**stars * ((1 - p) / 2) ** (num_variables - stars)
        for s in range(min(most, canonical_depth(lists, list(rho))) + 1):
            tail[s] += weight
    return tail


@pytest.mark.parametrize("seed", range(6))
def test_every_restriction_of_small_lists(seed):
    """The exact tail, over 3^6 restrictions, is is below the bound."""
    rng = np.random.default_rng(seed)
    width, heads = 1 + seed % 3, 1 + seed // 3
    p = Fraction(2, 5)
    lists = [random_list(rng, width, 6, 12) for _ in range(heads)]
    tail = exact_tail(lists, 6, 5, p)
    bounds = depth_tails(width, heads, 5, p)
    assert all(exact <= bound for exact, bound in zip(tail, bounds, strict=True))
    # A bound for p/10 is too small for these lists: the test can fail.
    low = depth_tails(width, heads, 5, p / 10)
    assert any(exact > bound for exact, bound in zip(tail, low, strict=True))


@pytest.mark.parametrize(
    ("width", "heads", "p"),
    [(1, 1, "1/5"), (1, 4, "1/10"), (2, 1, "1/10"), (2, 2, "3/20"), (3, 1, "1/20"),
     (3, 4, "1/20"), (4, 2, "1/20"), (4, 1, "1/10")],
)  # fmt: skip
def test_sampled_restrictions_stay_below_the_bound(width, heads, p):
    """The tail of 400 samples over 40 variables, three standard errors allowed."""
    rng = np.random.default_rng(width * 10 + heads)
    p, samples = Fraction(p), 400
    lists = [random_list(rng, width, 40, 60) for _ in range(heads)]
    depths = []
    for _ in range(samples):
        stars = rng.random(40) < float(p)
        rho = np.where(stars, STAR, rng.integers(2, size=40))
        depths.append(canonical_depth(lists, rho.tolist()))
    for s, bound in enumerate(depth_tails(width, heads, 8, p)):
        b = float(bound)
        measured = np.mean(np.array(depths) >= s)
        assert measured <= b + 3 * math.sqrt(b * (1 - b) / samples) + 1e-12


@pytest.mark.parametrize("p", PS)
def test_the_share_of_deep_activations_at_depth_one(p):
    """Depth 1, one head: (1-p) r^{t+1} + 2p r^t."""
    r = 2 * p / (1 + p)
    for most in (1, 3, 6):
        exact = (1 - p) * r ** (most + 1) + 2 * p * r**most
        share = deep_probability(1, 1, most, p)
        assert exact <= share <= exact + Fraction(1, 10**28)
