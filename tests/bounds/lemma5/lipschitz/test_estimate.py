"""Estimates are what they say, reproducible, and never above a bound."""

import dataclasses
import functools
import itertools
import operator as op
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.curves.inputs import GivenInputs
from bounds.lemma5.lipschitz import Estimate, estimate_lipschitz
from bounds.lemma5.lipschitz.curve import log10_lipschitz
from bounds.lemma5.lipschitz.searches import ascend_in_ball, ball_radius, output_at
from bounds.numbers.bound import Bound, Sense
from jax_models.model.transformer import embed, encode_positions
from tests.architecture import small_model
from tests.bounds.influence.models import scaled_weights

N = 6
QUICK = {"num_inputs": 2, "restarts": 2, "steps": 10}
CASES = {
    "causal": {"mask": "future", "layer_norm": "pre", "layer_norm_epsilon": 0.1},
    "residual": {},
}


def make(**options):
    return small_model(options.pop("key", 0), dtype="float64", **options)


@functools.cache
def found(name):
    model = make(**CASES[name])
    return model, estimate_lipschitz(model, N, **QUICK)


def log10_bounds(model):
    return log10_lipschitz(bounds.closed_form_bounds(model, N))


@pytest.mark.parametrize("name", CASES)
def test_no_search_passes_a_closed_form(name):
    model, estimate = found(name)
    for form, bound in log10_bounds(model).items():
        for search in estimate.searches:
            assert np.log10(search.value) < bound, (form, search)


def test_every_search_is_made_and_the_largest_is_the_estimate():
    _, estimate = found("residual")
    values = {search.method: search.value for search in estimate.searches}
    assert list(values) == ["substitution", "local", "ball"]
    assert estimate.value == max(values.values())
    assert estimate.value == values[estimate.method]
    assert estimate.scaled == N * estimate.value
    assert values["ball"] >= values["local"]
    made = {search.method: search.iterations for search in estimate.searches}
    assert made["ball"] == 20
    assert made["substitution"] == 2 * (N - 1)
    assert estimate.row()["estimate"] == estimate.value


def test_the_same_seed_gives_the_same_estimate_and_another_does_not():
    model, estimate = found("residual")
    assert estimate_lipschitz(model, N, **QUICK) == estimate
    other = estimate_lipschitz(model, N, **QUICK, seed=1)
    assert other.value != estimate.value
    assert {search.seed for search in other.searches} == {1}


def test_averaging_attains_its_constant_and_the_bound_is_sharp():
    """z_q + mean(O V z) and a constant: K_n is |O V| / n at all positions but q's."""
    still = ("query", "key", "query_bias", "key_bias", "w1", "w2")
    model = scaled_weights(make(key=7), **dict.fromkeys(still, 0.0))
    attention = model.layers[0].attention
    norm = float(np.linalg.norm(attention.output @ attention.value[0], 2))
    estimate = estimate_lipschitz(model, N, **{**QUICK, "num_inputs": 1})
    for search in estimate.searches:
        assert search.value <= norm / N * (1 + 1e-12)
    values = {search.method: search.value for search in estimate.searches}
    assert values["local"] == pytest.approx(norm / N, rel=1e-7)
    assert values["ball"] == pytest.approx(norm / N, rel=1e-4)
    assert estimate.scaled == pytest.approx(norm, rel=1e-7)
    # A bound that is off by one in n, or by one in a thousand, is caught.
    sharp = 10 ** log10_bounds(model)["linear"]
    assert estimate.value <= sharp * (1 + 1e-12)
    assert estimate.value > sharp * N / (N + 1)
    assert estimate.value > sharp * 0.999


def test_the_exact_ratio_is_the_definition():
    model = make(vocab_size=3, num_classes=2, key=3)
    tokens = np.array([0, 2, 1, 1, 0, 2])

    def read(tokens):
        rows = embed(model, jnp.asarray(tokens, jnp.int32))
        return jm.apply_logits(model, tokens)[2], rows

    best, (output, rows) = 0.0, read(tokens)
    for i, s in itertools.product(range(N), range(3)):
        if i == 2 or s == tokens[i]:
            continue
        other = tokens.copy()
        other[i] = s
        moved, there = read(other)
        change, distance = map(np.linalg.norm, (moved - output, there[i] - rows[i]))
        best = max(best, change / distance)
    inputs = GivenInputs("given", (tokens,))
    asked: Any = {"query": 2, "target": "logits", "restarts": 0}
    estimate = estimate_lipschitz(model, N, inputs=inputs, **asked)
    found = estimate.searches[0]
    assert found.value == pytest.approx(best, rel=1e-9)
    assert found.value <= best * (1 + 1e-12)
    assert (estimate.query, found.input) == (2, 0)


def test_a_token_that_may_not_be_substituted_stays():
    model = dataclasses.replace(make(vocab_size=3), substitutable=(0, 1))
    tokens = np.array([0, 2, 1, 2, 0, 2])
    given = GivenInputs("given", (tokens,))
    estimate = estimate_lipschitz(model, N, inputs=given, restarts=0)
    # The query's own norm is by far the largest.
    assert {search.position for search in estimate.searches} <= {0, 2, 4}
    nothing = GivenInputs("given", (np.full(N, 2),))
    with pytest.raises(jm.InputError, match="no position that may change"):
        estimate_lipschitz(model, N, inputs=nothing)


def test_equal_embeddings_have_no_ratio():
    model = make()
    same = dataclasses.replace(
        model, embedding=model.embedding.at[1].set(0).at[0].set(0)
    )
    estimate = estimate_lipschitz(same, N, num_inputs=1, restarts=0)
    found = estimate.searches[0]
    assert (found.value, found.position) == (0.0, None)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"length": 1}, "nothing to change"),
        ({"target": "logit"}, "target = 'logit'"),
        ({"target": "logits"}, "no read-out"),
        ({"query": 6}, "query = 6"),
        ({"steps": 0}, "steps = 0"),
        ({"inputs": "dyck7"}, "dyck7"),
    ],
)
def test_a_bad_question_is_refused(changed, complaint):
    question = {"length": N, "restarts": 0, **changed}
    with pytest.raises(jm.InputError, match=complaint):
        estimate_lipschitz(make(), question.pop("length"), **question)


@pytest.mark.parametrize("weighting", ["leftmost_hard", "average_hard"])
def test_hard_attention_has_no_constant(weighting):
    with pytest.raises(jm.InputError, match=r"layers\.0.*no Lipschitz constant"):
        estimate_lipschitz(make(weighting=weighting), N)


def test_an_estimate_compares_with_nothing():
    one = Estimate(1.0, "local", 0, 1)
    bound = Bound(1.0, Sense.UPPER, "K", (), "by definition")
    for other in (bound, Estimate(2.0, "local", 0, 1), 1.0):
        for compare in (op.lt, op.le, op.gt, op.ge):
            with pytest.raises(TypeError):
                compare(one, other)
    assert "estimated" in repr(one)


QUERY, POSITION, FIXED = 5, 1, 4
MODEL = make(key=4, num_layers=2, d_ff=8, vocab_size=3)
ROWS = embed(MODEL, jnp.asarray([0, 1, 2, 0, 1, 1], jnp.int32))
RADIUS = ball_radius(MODEL, N)
HOW = {"query": QUERY, "target": "activation"}


def test_an_ascent_gains_a_local_norm_in_the_ball_where_fixed_rows_stay():
    free = jnp.arange(N) != FIXED
    start = (ROWS, jnp.ones(4), jnp.asarray(POSITION), free, jnp.asarray(RADIUS))
    found = ascend_in_ball(MODEL, *start, steps=30, **HOW)
    value, rows, direction = (np.asarray(x) for x in found)
    # d y_q / d z_i of the position that is followed, by forward mode.
    jacobian = jax.jit(jax.jacfwd(lambda z: output_at(MODEL, z, **HOW)))
    there, before = (np.asarray(jacobian(x)[:, POSITION]) for x in (rows, ROWS))
    unit = direction / np.linalg.norm(direction)
    assert float(value) == pytest.approx(np.linalg.norm(there @ unit), rel=1e-9)
    assert float(value) <= np.linalg.norm(there, 2) * (1 + 1e-12)
    assert float(value) > 1.05 * np.linalg.norm(before, 2)
    assert (np.linalg.norm(rows, axis=1) <= RADIUS * (1 + 1e-12)).all()
    np.testing.assert_array_equal(rows[FIXED], np.asarray(ROWS)[FIXED])
    moved = (rows != np.asarray(ROWS)).all(axis=1)
    np.testing.assert_array_equal(moved, np.arange(N) != FIXED)


def test_the_radius_is_the_largest_row_of_any_token_anywhere():
    rows = [
        np.asarray(MODEL.embedding)[s] + np.asarray(encode_positions(MODEL, N))[j]
        for s, j in itertools.product(range(3), range(N))
    ]
    assert pytest.approx(max(map(np.linalg.norm, rows)), rel=1e-14) == RADIUS
