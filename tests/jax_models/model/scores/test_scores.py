"""Every score's changes are differences of its scores; a new one is a file and a row."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from jax_models.model.scores import SCORES, PairwiseScore
from tests.architecture import small_model
from tests.bounds.influence.expect import refused
from tests.jax_models.format.pretrained.folders import by_rerunning


@dataclasses.dataclass(frozen=True)
class NegativeSquaredDistance(PairwiseScore):
    """s = -|q - k|^2, which the package does not have."""

    word = "negative-squared-distance"

    def pair_scores(self, queries, keys):
        return -((queries - keys) ** 2).sum(axis=-1)

    def pair_changes(self, queries, keys, moved_queries, moved_keys):
        moved = 0.0 if moved_queries is None else moved_queries
        moved = moved if moved_keys is None else moved - moved_keys
        return -(moved * (2 * (queries - keys) + moved)).sum(axis=-1)


HEADS, ROWS, KEYS, WIDTH = 2, 3, 5, 4
DRAW = np.random.default_rng(4)
VECTOR = DRAW.normal(size=(HEADS, WIDTH))
SCORED = {
    name: score.with_vector(jnp.asarray(VECTOR) if score.takes_vector else None)
    for name, score in SCORES.items()
} | {"invented": NegativeSquaredDistance()}


def drawn(*shape):
    return jnp.asarray(DRAW.normal(size=shape))


QUERIES, MOVED_QUERIES = drawn(HEADS, ROWS, WIDTH), drawn(HEADS, ROWS, WIDTH)
KEYS_BEFORE, MOVED_KEYS = drawn(HEADS, KEYS, WIDTH), drawn(HEADS, KEYS, WIDTH)
OWN_KEYS = drawn(HEADS, ROWS, WIDTH)
OWN = jnp.arange(KEYS)[None, :] == jnp.asarray([4, 0, 2])[:, None]


@pytest.fixture(params=SCORED)
def score(request):
    return SCORED[request.param]


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("moved", ["query", "key", "query and key"])
def test_changes_are_differences_of_scores(score, moved):
    query = MOVED_QUERIES if "query" in moved else None
    key = MOVED_KEYS if "key" in moved else None
    found = score.changes(QUERIES, KEYS_BEFORE, query, key)
    after = score.scores(
        QUERIES if query is None else QUERIES + query,
        KEYS_BEFORE if key is None else KEYS_BEFORE + key,
    )
    near(found, after - score.scores(QUERIES, KEYS_BEFORE))


def test_a_row_that_moves_one_key_sees_that_key_alone_move(score):
    found = score.own_changes(QUERIES, KEYS_BEFORE, MOVED_QUERIES, OWN_KEYS, OWN)
    before = score.scores(QUERIES, KEYS_BEFORE)
    for row in range(ROWS):
        keys = KEYS_BEFORE + jnp.where(OWN[row][:, None], OWN_KEYS[:, row, None], 0)
        after = score.scores(QUERIES + MOVED_QUERIES, keys)
        near(found[:, row], (after - before)[:, row])


def test_an_error_of_a_change_is_seen(monkeypatch):
    right = NegativeSquaredDistance.pair_changes

    def wrong(self, *pair):
        return right(self, *pair) * (1 + 1e-9)

    monkeypatch.setattr(NegativeSquaredDistance, "pair_changes", wrong)
    with pytest.raises(AssertionError):
        test_changes_are_differences_of_scores(SCORED["invented"], "query and key")


def model_of(monkeypatch, score="invented", **options):
    monkeypatch.setitem(SCORES, "invented", NegativeSquaredDistance())
    return small_model(score=score, dtype="float64", **options)


@pytest.mark.parametrize("name", SCORED)
def test_a_score_is_one_file_and_one_row(name, monkeypatch):
    model = model_of(monkeypatch, name, num_layers=2, num_heads=2, mask="future")
    tokens = np.array([0, 1, 1, 0, 1])
    asked: Any = {"method": "incremental", "rounding": "none"}
    found = bounds.compute_influence(model, tokens, **asked)
    wanted = by_rerunning(model, tokens, [0, 1])
    np.testing.assert_allclose(found.upper[:-1], wanted[:-1], rtol=1e-9)


@pytest.mark.parametrize(
    ("ask", "options"),
    [
        (lambda m: bounds.certify_influence(m, [0, 1, 1]), {"num_layers": 1}),
        (lambda m: bounds.read_constants(m, 3), {"num_layers": 1}),
        (
            lambda m: bounds.compute_influence(m, [0, 1, 1], method="screened"),
            {"num_layers": 2},
        ),
        (
            lambda m: bounds.find_restriction(m, 3),
            {"num_layers": 1, "weighting": "leftmost_hard"},
        ),
    ],
    ids=["certificate", "constants", "screen", "restriction"],
)
def test_what_lacks_a_rule_for_a_score_refuses_it_by_name(monkeypatch, ask, options):
    model = model_of(monkeypatch, **options)
    with refused("negative-squared-distance"):
        ask(model)
