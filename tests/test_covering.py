"""The covering arrays cover, and are small."""

import itertools

from tests.covering import combinations, cover

FACTORS = {"a": range(4), "b": range(5), "c": range(3), "d": range(2), "e": range(2)}


def allowed(case):
    return not (case.get("a") == 0 and case.get("e") == 1)


def test_every_pair_is_met():
    cases = cover(FACTORS, 2, allowed)
    assert all(allowed(case) for case in cases)
    for one, two in itertools.combinations(FACTORS, 2):
        met = {(case[one], case[two]) for case in cases}
        every = set(itertools.product(FACTORS[one], FACTORS[two]))
        if (one, two) == ("a", "e"):
            every.remove((0, 1))
        assert met == every
    # 20 are needed for the two largest factors alone.
    assert len(cases) <= 24


def test_every_triple_is_met():
    cases = cover(FACTORS, 3, allowed)
    met = set()
    for case in cases:
        met |= {frozenset(part) for part in itertools.combinations(case.items(), 3)}
    assert combinations(FACTORS, 3, allowed) <= met
    assert len(cases) < 4 * 5 * 3 * 2 * 2
