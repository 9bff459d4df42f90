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


def both(model, tokens=TOKENS, query=-1, rounding=("auto", "auto"), **question):
    question = {"query": query, "include_query": True, **question}
    return [
        compute_influence(model, tokens, method=name, rounding=of_name, **question)
        for name, of_name in zip(("incremental", "exhaustive"), rounding, strict=True)
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
            assert_agree(*both(model, tokens), hard=True)


@pytest.mark.slow
def test_the_last_layer_may_be_soft_and_the_layers_may_differ():
    kinds = [
        ("average_hard", "dot_product"),
        ("leftmost_hard", "additive"),
        ("softmax", "scaled_dot_product"),
    ]
    models = [
        build({"weighting": weighting, "score": score, "num_layers": 1}, seed)
        for seed, (weighting, score) in enumerate(kinds)
    ]
    layers = tuple(layer for model in models for layer in model.layers)
    model = dataclasses.replace(models[-1], layers=layers)
    assert is_sparse(request_of(model))
    assert_agree(*both(model), hard=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "depth"), [("ones", 3), ("anbn", 2)])
def test_constructions_with_exact_ties(name, depth):
    """A construction's layers several times over: exact ties at every depth."""
    model = PRESETS[name](dtype="float64")
    model = dataclasses.replace(model, layers=model.layers * depth)
    tokens = np.random.default_rng(2).integers(0, 2, 24).astype(np.int32)
    assert is_sparse(request_of(model, tokens, 23))
    # Without its radius, which at 0 may be more than that of the subtraction.
    found, expected = both(model, tokens, ties="ignore", rounding=("none", "auto"))
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


# Cells so wide that rows are ambiguous, some only after a substitution.
WIDE = {"num_layers": 3, "tie_resolution": 0.02}


@pytest.mark.slow
@pytest.mark.parametrize("weighting", HARD)
@pytest.mark.parametrize(
    ("case", "seeds"),
    [
        ({"num_layers": 4}, [3]),
        ({"num_layers": 4, "position": None}, [3]),
        (WIDE, range(3)),
    ],
)
def test_influences_and_ties_are_those_of_moving_all_rows(weighting, case, seeds):
    verdicts = []
    for seed in seeds:
        request = request_of(build({"weighting": weighting, **case}, seed))
        expected, ties = all_rows_moved(request)
        blocks = list(METHODS["incremental"].blocks(request))
        found, met = np.concatenate([x.changes for x in blocks]), blocks[-1].ties
        np.testing.assert_allclose(
            request.read(found), expected, rtol=1e-12, atol=1e-13
        )
        assert met.ambiguous == ties.ambiguous
        if case is not WIDE:
            assert met.gap == pytest.approx(ties.gap, rel=1e-9)
            assert met.spread == pytest.approx(ties.spread, abs=1e-13)
        verdicts.append(met.ambiguous)
    assert any(verdicts) == (case is WIDE)


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


def old_scores(right, layer, base, least, wanted, moved, change):
    """Forgets that a key that moved may beat the winner."""
    attention, keys = layer.attention, base.store.keys[:, moved]
    scores = compute_scores(attention, base.queries, keys, base.store.length, wanted)
    hits = (scores >= least[..., None]).any(axis=0).T
    return hits, right(layer, base, least, wanted, moved, change)[1]


def after(change):
    """What becomes of a function's two results."""
    return lambda right, *given: change(*right(*given))


def decided(rows, ties):
    return (rows[0], jnp.ones_like(rows[1])), ties


PLANTED = {
    "always decided": ("replace_rows", after(decided)),
    "no question moves": (
        "touched_rows",
        after(lambda hits, asks: (hits, asks & False)),
    ),
    "no row is touched": (
        "touched_rows",
        after(lambda hits, asks: (hits & False, asks)),
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
        found, expected = both(build(case, seed), ties="ignore", rounding=("none",) * 2)
        worst = max(worst, np.nanmax(np.abs(found.upper - expected.upper)))
        if worst > 1e-3:
            return
    raise AssertionError(f"no influence is off by more than {worst}")


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
