"""Following only the rows that change gives what moving all rows gives, exactly."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import METHODS, compute_influence
from bounds.influence.build import build_request
from bounds.influence.choice import choose_method
from bounds.influence.methods.incremental import is_sparse
from bounds.influence.propagation import sparse
from bounds.influence.propagation.change_block import change_block, prepare
from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.propagation.sparse import least_scores, touched_rows
from bounds.influence.result import Ties
from jax_models.constructions import PRESETS
from jax_models.model.attending import compute_scores
from jax_models.weighting.hard import HardWeighting
from tests.bounds.influence.models import FACTORS, allowed, build, edit_weights
from tests.bounds.influence.test_laws import assert_agree
from tests.covering import cover

HARD = ("leftmost_hard", "rightmost_hard", "average_hard")
N = 40
TOKENS = np.random.default_rng(5).integers(0, 3, N).astype(np.int32)


def both(model, tokens=TOKENS, query=-1, **question):
    question = {"query": query, "include_query": True, **question}
    return [
        compute_influence(model, tokens, method=name, **question)
        for name in ("incremental", "exhaustive")
    ]


def request_of(model, tokens=TOKENS, query=N - 1):
    return build_request(model, tokens, query=query)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    cover({**FACTORS, "weighting": HARD, "num_layers": (3, 4, 5)}, 2, allowed),
    ids=lambda case: "-".join(str(x) for x in case.values()),
)
def test_where_any_two_features_meet(case):
    model, query = build(case), 0 if "past" in case["mask"] else N - 1
    assert is_sparse(request_of(model, TOKENS, query))
    found, expected = both(model, TOKENS, query, target=case["target"])
    assert expected.max > 1e-3
    assert_agree(found, expected, hard=True)


@pytest.mark.slow
@pytest.mark.parametrize("weighting", HARD)
@pytest.mark.parametrize(("vocab", "n"), [(2, 96), (5, 30), (3, 7), (4, 1)])
def test_at_any_length_and_vocabulary(weighting, vocab, n):
    tokens = np.random.default_rng(n).integers(0, vocab, n).astype(np.int32)
    case = {"weighting": weighting, "num_layers": 3, "vocab_size": vocab}
    for seed in range(3):
        for position in (None, "sinusoidal"):
            model = build({**case, "position": position}, seed)
            found, expected = both(model, tokens)
            assert_agree(found, expected, hard=True)


@pytest.mark.slow
def test_the_last_layer_may_be_soft_and_the_layers_may_differ():
    layers, below = [], None
    for k, (weighting, score) in enumerate(
        [
            ("average_hard", "dot_product"),
            ("leftmost_hard", "additive"),
            ("softmax", "scaled_dot_product"),
        ]
    ):
        below = build({"weighting": weighting, "score": score, "num_layers": 1}, k)
        layers += below.layers
    model = type(below)(below.embedding, tuple(layers), below.position)
    assert is_sparse(request_of(model))
    found, expected = both(model)
    assert_agree(found, expected, hard=True)


def stacked(model, depth):
    """A construction's layers several times over: exact ties at every depth."""
    return type(model)(
        model.embedding, model.layers * depth, model.position, readout=model.readout
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "depth"), [("ones", 3), ("anbn", 2)])
def test_constructions_with_exact_ties(name, depth):
    model = stacked(PRESETS[name](dtype="float64"), depth)
    tokens = np.random.default_rng(2).integers(0, 2, 24).astype(np.int32)
    assert is_sparse(request_of(model, tokens, 23))
    ask: Any = functools.partial(compute_influence, model, tokens, ties="ignore")
    expected = ask(method="exhaustive", include_query=True)
    # Without its radius, which at 0 may be more than that of the subtraction.
    found = ask(method="incremental", include_query=True, rounding="none")
    assert expected.max > 1e-3
    assert found.ties.ambiguous == expected.ties.ambiguous
    assert_agree(found, expected, hard=False)


def all_rows_moved(request):
    """The dense propagation: influences and ties."""
    tokens = jnp.asarray(request.tokens)
    state = prepare(request.model, tokens, request.query)
    changes, ties = change_block(
        request.model,
        request.target_value,
        tokens,
        state,
        jnp.asarray(request.position),
        jnp.asarray(request.symbol),
        row_tile=16,
    )
    seen = Ties.of(ties).merge(Ties.of(state.ties))
    return request.read(np.asarray(changes)), seen


@pytest.mark.slow
@pytest.mark.parametrize("weighting", HARD)
@pytest.mark.parametrize("position", ["sinusoidal", None])
def test_influences_and_ties_are_those_of_moving_all_rows(weighting, position):
    case = {"weighting": weighting, "num_layers": 4, "position": position}
    request = request_of(build(case, seed=3))
    expected, ties = all_rows_moved(request)
    blocks = list(METHODS["incremental"].blocks(request))
    found = np.concatenate([request.read(block.changes) for block in blocks])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    met = blocks[-1].ties
    assert met.ambiguous == ties.ambiguous
    assert met.gap == pytest.approx(ties.gap, rel=1e-9)
    assert met.spread == pytest.approx(ties.spread, abs=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("weighting", HARD)
def test_wide_cells_are_reported_alike(weighting):
    """Cells so wide that rows are ambiguous, some only after a substitution."""
    case = {"weighting": weighting, "num_layers": 3, "tie_resolution": 0.02}
    verdicts = []
    for seed in range(3):
        request = request_of(build(case, seed))
        _, ties = all_rows_moved(request)
        found = compute_influence(
            request.model, TOKENS, method="incremental", ties="ignore"
        )
        assert found.ties.ambiguous == ties.ambiguous
        verdicts.append(ties.ambiguous)
    assert any(verdicts)


@pytest.mark.slow
def test_a_substitution_that_changes_no_row_above_has_no_influence():
    model, tokens = build({"weighting": "leftmost_hard", "num_layers": 3}), TOKENS[:16]
    request = request_of(model, tokens, 15)
    state = prepare(request.model, jnp.asarray(tokens), 15)
    windows = list(sparse.change_windows(request, state))
    change = np.concatenate([window.change for window in windows])
    sizes = np.concatenate([window.sizes for window in windows], axis=1)
    assert sizes.shape == (2, request.position.size)
    assert (change[sizes[-1] == 0] == 0).all()
    # A future query's rows reach it only through what it reads.
    assert 0 < (change != 0).any(axis=1).sum() < request.position.size


@pytest.mark.slow
def test_how_sets_are_cut_changes_nothing(monkeypatch):
    """Capacities 1, 4, 16 and 40, frames of few rows, one substitution a run."""
    model = build({"weighting": "average_hard", "num_layers": 3}, seed=4)
    usual = compute_influence(model, TOKENS, method="incremental")
    monkeypatch.setattr("bounds.influence.propagation.changed_layer.GROWTH", 4)
    monkeypatch.setattr("bounds.influence.propagation.changed_layer.SHORT", 0)
    monkeypatch.setattr(sparse, "FRAME_ROWS", 4)
    monkeypatch.setattr(sparse, "ROWS_KEPT", 1)
    monkeypatch.setattr(sparse, "PAIRS", 7 * N)
    monkeypatch.setattr(sparse, "window_size", lambda length: 13)
    cut = compute_influence(model, TOKENS, method="incremental")
    np.testing.assert_allclose(cut.upper, usual.upper, rtol=1e-12, atol=1e-14)
    assert cut.ties == usual.ties


def test_auto_follows_changed_rows_where_positions_are_told_apart():
    tokens = np.random.default_rng(1).integers(0, 3, 100)
    for case, method in [
        ({"weighting": "leftmost_hard"}, "incremental"),
        ({"weighting": "average_hard"}, "incremental"),
        ({"weighting": "average_hard", "position": None}, "partial"),
        ({"weighting": "softmax"}, "partial"),
    ]:
        model = build({"num_layers": 3, "mask": "future", **case})
        request = build_request(model, tokens, positions=range(60))
        assert choose_method("auto", request).way.name == method, case


# Planted errors.


def old_scores(right, layer, base, least, wanted, moved, change):
    """Forgets that a key that moved may beat the winner."""
    attention, keys = layer.attention, base.store.keys[:, moved]
    scores = compute_scores(attention, base.queries, keys, base.store.length, wanted)
    hits = (scores >= least[..., None]).any(axis=0).T
    return hits, right(layer, base, least, wanted, moved, change)[1]


def after(change):
    """What becomes of a function's two results."""
    return lambda right, *given: change(*right(*given))


PLANTED = {
    "always decided": (
        "replace_rows",
        after(lambda rows, ties: ((rows[0], jnp.ones_like(rows[1])), ties)),
    ),
    "no question moves": (
        "touched_rows",
        after(lambda hits, asks: (hits, jnp.zeros_like(asks))),
    ),
    "no row is touched": (
        "touched_rows",
        after(lambda hits, asks: (jnp.zeros_like(hits), asks)),
    ),
    "only old scores touch": ("touched_rows", old_scores),
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("weighting", ["leftmost_hard", "average_hard"])
def test_a_planted_error_is_caught(monkeypatch, weighting, planted):
    case = {"weighting": weighting, "num_layers": 3, "mask": "none"}
    name, wrong = PLANTED[planted]
    monkeypatch.setattr(sparse, name, functools.partial(wrong, getattr(sparse, name)))
    worst = 0.0
    for seed in range(3):
        found, expected = both(build(case, seed), ties="ignore", rounding="none")
        worst = max(worst, np.nanmax(np.abs(found.upper - expected.upper)))
        if worst > 1e-3:
            return
    raise AssertionError(f"no influence is off by more than {worst}")


# The sets themselves.


SCORES = np.array([8.0, 4.0, 4.375, 1.5, 0.25])
IN_BEST_TWO = np.array([True, True, True, False, False])


def scored(resolution) -> Any:
    """A layer of one head where all rows score the keys by the rows' first coordinate."""
    case = {"weighting": "average_hard", "num_layers": 1, "num_heads": 1}
    case |= {"score": "dot_product", "tie_resolution": resolution}
    model = edit_weights(
        jax.tree.map(jnp.zeros_like, build(case)),
        query_bias=lambda x: x.at[0, 0].set(1),
        key=lambda x: x.at[0, 0, 0].set(1),
        value=lambda x: x.at[0, 0, 1].set(1),
    )
    return model.layers[0]


@pytest.mark.parametrize(
    ("resolution", "term"),
    [(1.0, "resolution"), (1e-30, "score_roundoff")],
    ids=["wide cells", "narrow cells"],
)
def test_a_score_that_comes_out_lower_touches_still(resolution, term, monkeypatch):
    layer = scored(resolution)
    at = jnp.arange(SCORES.size, dtype=jnp.int32)
    scores = SCORES
    if term == "score_roundoff":  # a second cell of one score
        scores = np.where(SCORES == 4.375, 4.0, SCORES)
    rows = jnp.zeros((SCORES.size, 8)).at[:, 0].set(jnp.asarray(scores))
    base = jax.jit(prepare_layer)(layer, rows, at)
    weighting = layer.attention.weighting
    roundoff = 2 * weighting.score_roundoff(rows.dtype) * SCORES.max()
    lower = 0.9 * (weighting.resolution(rows.dtype) + roundoff)
    # All scores computed anew are lower, by nearly as much as they may be.
    store = dataclasses.replace(base.store, keys=base.store.keys - lower)
    base = dataclasses.replace(base, store=store)
    change = jnp.zeros_like(rows).at[:, 1].set(1)  # values move, and no score does

    def touched():
        program: Any = least_scores  # which would keep the term in its trace
        least = program.__wrapped__(layer, base)
        return np.asarray(touched_rows(layer, base, least, at, at, change)[0]).T

    assert (touched() == IN_BEST_TWO).all()
    # The oracle notices where the term is left out.
    monkeypatch.setattr(HardWeighting, term, lambda *_: 0.0)
    assert not touched()[:, 1].any()
