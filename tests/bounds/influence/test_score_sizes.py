"""What keys or queries of the last of several layers annihilate leaves rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence import head_rounding, query_row
from bounds.influence.head_rounding import lift_with_sizes
from bounds.influence.score_sizes import key_sizes, query_sizes, score_slopes
from bounds.influence.sizes import score_rounding
from jax_models.model.attending import (
    compute_scores,
    project_keys,
    project_queries,
    score_scale,
)
from jax_models.weighting import MovedKeys, contract, spread_of
from tests.bounds.influence.models import build
from tests.bounds.influence.unread import (
    MANY,
    ends,
    holds,
    reading_deep,
    with_last,
    zeros_of,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODELS = {
    "keys": lambda: reading_deep("key"),
    "queries": lambda: reading_deep("query"),
    "keys of three layers": lambda: reading_deep("key", num_layers=3),
    "queries of three layers": lambda: reading_deep("query", num_layers=3),
    "keys that turn": lambda: reading_deep("key", rotary=jm.Rotary(4), position=None),
    "keys of norms": lambda: reading_deep("key", query_key_norm="rms_norm"),
}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        *((x, None) for x in MODELS),
        *((x, MANY) for x in ("keys", "queries", "keys of three layers")),
    ],
)
def test_what_the_last_layers_scores_annihilate_is_enclosed(name, rows):
    assert holds(MODELS[name](), rows=rows)


@pytest.mark.parametrize(
    ("module", "name", "question"),
    [
        (query_row, "keys", {}),
        (query_row, "queries", {}),
        (head_rounding, "keys", {"rows": MANY}),
    ],
    ids=["row", "row by queries", "rows"],
)
def test_a_planted_error_is_noticed(module, name, question, plant):
    plant(module, "score_slopes", zeros_of(score_slopes))
    assert not holds(MODELS[name](), **question)


def test_a_score_moves_nothing_where_one_key_has_all_the_weight():
    model = reading_deep("key", num_layers=2)
    sharp = with_last(model, query=200 * model.layers[-1].attention.query)
    (true, _, upper), (_, _, plain) = ends(sharp), ends(model)
    assert true <= upper < 1e-9 * plain


CASES = {
    "usual": {},
    "additive": {"score": "additive"},
    "turned": {"rotary": jm.Rotary(4), "position": None},
    "norms": {"query_key_norm": "rms_norm"},
}


@pytest.mark.parametrize("case", CASES)
def test_slopes_bound_how_entries_of_rows_move_scores(case):
    """By sqrt(e) at most, of the root of squares, and apart from what S counts besides."""
    attention, n = build(CASES[case]).layers[-1].attention, 8
    rows = jax.random.normal(jax.random.key(1), (n, 8), "float64")
    at = jnp.arange(n)

    def scores(asking, asked):
        queries = project_queries(attention, asking, n, at)
        return compute_scores(
            attention, queries, project_keys(attention, asked, n, at), n, at, at
        )

    queries = project_queries(attention, rows, n, at)
    keys = project_keys(attention, rows, n, at)
    slopes = score_slopes(attention, queries, keys, n)
    steps = score_rounding(attention, queries, keys, score_scale(attention, n, at), n)
    moves = jax.jacobian(scores, argnums=(0, 1))(rows, rows)
    for slope, move, size in zip(slopes, moves, (query_sizes, key_sizes), strict=True):
        for entry in range(8):
            one = jnp.zeros((n, 8)).at[:, entry].set(1.0)
            # So small that a norm is where it was.
            found = size(attention, slope, rows, 1e-9 * one, one) * (1 + steps / 16)
            most = jnp.abs(move[..., entry]).max(axis=(1, 2))  # [h, k]
            assert (most <= np.sqrt(attention.key_width) * found).all()
            assert (found < 100 * most.max()).all()


def test_sizes_are_weighed_by_the_weights_that_the_top_key_leaves():
    """B, A and C of two tiles of keys, and what becomes of them."""
    attention, n = build({}).layers[-1].attention, 9
    keys = iter(jax.random.split(jax.random.key(3), 5))
    score, off, values, change = (
        jax.random.normal(next(keys), shape, "float64")
        for shape in ((2, 3, n), (2, 3, n), (2, n, 4), (2, n, 4))
    )
    off, still = jnp.abs(off), jnp.zeros((2, 3, n))
    index, seen = jnp.arange(n, dtype=jnp.int32), jnp.ones((3, n), bool)
    softmax = attention.weighting
    summary = softmax.lift(score, values, index, seen)
    summary = softmax.settle(summary, lambda lift: lift(score, values, index, seen))

    def lift(part):
        moved = MovedKeys(
            index=index[part],
            score=score[..., part],
            score_change=still[..., part],
            visible=seen[:, part],
            spread=spread_of(softmax, values[:, part]),
            carry=lambda w: contract(w, change[:, part]),
        )
        return lift_with_sizes(attention, summary, moved, off[..., part], beside=False)

    folded = softmax.merge_change(lift(slice(0, 4)), lift(slice(4, n)))
    apart = head_rounding.distances(values)
    heads, found = head_rounding.taken_apart(softmax.read_change(folded), apart)
    weights = np.asarray(jax.nn.softmax(score, axis=-1))
    rest = np.where(weights == weights.max(axis=-1, keepdims=True), 0, weights)
    near = {"rtol": 1e-12}
    np.testing.assert_allclose(
        heads, np.einsum("hrk,hkv->hrv", weights, change), **near
    )
    sums = [(x * y).sum(axis=-1) for x, y in ((rest, off), (weights, off), (rest, 1))]
    expected = (sums[0] + sums[1] * sums[2])[..., None] * np.std(values, axis=1)[
        :, None
    ]
    np.testing.assert_allclose(found, expected, **near)
