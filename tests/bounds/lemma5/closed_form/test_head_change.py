"""Corollary B dominates the exact change of one average, and needs every term."""

import math

import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    head_change,
    influence_recursion,
    recursion,
)
from bounds.lemma5.closed_form.recursion import weight_bound
from tests.bounds.lemma5.closed_form.sharp import CASES

IDS = [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("saturating", [False, True])
def test_it_dominates_where_it_is_nearly_attained(case, saturating):
    score = DotProduct(case.mu)
    bound = head_change(
        score,
        case.layer.norm,
        case.length,
        0.0,
        0.0,
        case.distance,
        saturating=saturating,
    )
    assert case.exact <= bound.value * (1 + 1e-12)
    # 1 + 4A at most, times the share of key 1 in the weights.
    assert bound.value <= (1 + 4 * case.mu) * 2 * case.exact


def dominated(cases):
    """Returns the cases whose exact change exceeds what the recursion says."""
    return [
        case.name
        for case in cases
        if case.exact
        > influence_recursion([case.layer], case.length, case.distance)[0].others.value
        * (1 + 1e-12)
    ]


def test_the_recursion_dominates_them_too():
    assert dominated(CASES) == []


def test_an_off_by_one_length_is_caught(monkeypatch):
    monkeypatch.setattr(recursion, "weight_bound", lambda a, n: weight_bound(a, n + 1))
    assert set(dominated(CASES)) == {"uniform, n = 2", "uniform, n = 8"}


@pytest.mark.parametrize("seed", range(20))
def test_it_dominates_random_changes_of_every_key(seed):
    """All keys move by up to κ, key 0 by up to σ, the query by up to q."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 9)), 3
    matrix = rng.normal(size=(d, d))
    keys = rng.normal(size=(n, d))
    other, own, query = 10.0 ** rng.uniform(-3, 0, size=3)
    own = max(own, other)
    directions = rng.normal(size=(n + 1, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sizes = np.array([own, *[other] * (n - 1), query])
    steps = directions * sizes[:, None]
    before, at = keys, rng.normal(size=d)
    after, moved = keys + steps[:n], at + steps[n]
    norm = max(np.linalg.norm(x, axis=-1).max() for x in (before, after, at, moved))
    exact = np.linalg.norm(average(matrix, moved, after) - average(matrix, at, before))
    score = DotProduct(float(np.linalg.norm(matrix, 2)) * (1 + 1e-14))
    for saturating in (False, True):
        bound = head_change(
            score,
            float(norm) * (1 + 1e-14),
            n,
            query,
            other,
            own,
            saturating=saturating,
        )
        assert exact <= bound.value


def average(matrix, query, keys):
    logits = keys @ (matrix.T @ query)
    weights = np.exp(logits - logits.max())
    return weights @ keys / weights.sum()


def test_a_query_that_turns_round_moves_logits_by_their_full_range():
    """Keys half +1, half -1, logits a y_j y_w, y_j = 1 -> -1: change 2 tanh a."""
    a, half = 0.05, 5000
    keys = np.array([[1.0]] * half + [[-1.0]] * half)
    matrix = np.array([[a]])
    ends = [average(matrix, np.array([y]), keys) for y in (1.0, -1.0)]
    exact = np.linalg.norm(ends[0] - ends[1])
    assert exact == pytest.approx(2 * math.tanh(a))
    for score in (DotProduct(a), Additive(a, 1.0, a)):
        bound = head_change(score, 1.0, 2 * half, 1e3, 0.0, 0.0)
        assert exact <= bound.value <= 1.01 * exact


def test_it_saturates_at_the_diameter():
    score = Additive(5.0, 5.0, 100.0)
    bound = head_change(score, 2.0, 3, 1e6, 1e6, 1e6)
    assert bound.value == pytest.approx(4.0, rel=1e-15)
    linear = head_change(score, 2.0, 3, 1e6, 1e6, 1e6, saturating=False)
    assert linear.value > 1e7
