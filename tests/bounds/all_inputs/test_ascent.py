"""The search over inputs finds what is attained, never more, and says that it is one."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.all_inputs import ascent
from bounds.all_inputs.ascent import AscentPlan, ascend_mixture
from bounds.all_inputs.supremum import exact_supremum
from bounds.all_inputs.universe import list_inputs
from tests.bounds.all_inputs.brute_force import largest_influence
from tests.bounds.influence.models import build

N = 7


def masked(**settings):
    return build({"mask": "future", "vocab_size": 2, "num_layers": 2, **settings})


@pytest.mark.parametrize("weighting", ["softmax", "average_hard"])
def test_on_short_inputs_it_finds_the_supremum(weighting):
    model = masked(weighting=weighting)
    found = bounds.search_inputs(model, N, restarts=4, rounds=4, ties="ignore")
    assert found.max == pytest.approx(largest_influence(model, N), rel=1e-10)


def test_what_it_returns_is_attained_and_an_estimate():
    model = masked()
    found = bounds.search_inputs(model, N, restarts=2, rounds=4)
    again = bounds.compute_influence(
        model, found.tokens, positions=[found.position], symbols=[found.symbol]
    )
    assert again.max == pytest.approx(found.max, rel=1e-12)
    assert not found.exact
    assert found.max_upper == math.inf
    assert "estimated from below" in repr(found)


def test_a_restart_depends_on_the_seed_and_itself_alone():
    inputs = list_inputs(masked(), N, -1, "activation")
    few, many = (AscentPlan(inputs, 5, restarts, 3) for restarts in (2, 8))
    for block in (1, 0):
        one, two = few.run(block), many.run(block)
        assert one.max == two.max
        np.testing.assert_array_equal(one.tokens, two.tokens)
    other = AscentPlan(inputs, 6, 2, 3).run(0)
    assert (other.tokens != few.run(0).tokens).any()


@pytest.mark.slow
def test_every_round_starts_no_lower_than_the_drawn_inputs():
    model = masked()
    start = bounds.search_inputs(model, 12, restarts=1, rounds=1)
    further = bounds.search_inputs(model, 12, restarts=1, rounds=6)
    assert further.max >= start.max
    assert further.configurations > start.configurations


@pytest.mark.slow
def test_deep_models_are_looked_at_in_some_positions(monkeypatch):
    monkeypatch.setattr(ascent, "EXHAUST_TO", 4)
    monkeypatch.setattr(ascent, "POSITIONS", 2)
    model = masked(num_layers=3)
    found = bounds.search_inputs(model, 8, restarts=1, rounds=2)
    # The drawn input, two rounds and at most two new starts: three positions each.
    assert 0 < found.configurations <= 5 * 3


def test_a_model_in_float32_is_searched_where_float64_is_enabled():
    model = jm.with_dtype(masked(), "float32")
    found = bounds.search_inputs(model, N, restarts=2, rounds=1)
    assert 0 < found.max <= largest_influence(model, N) * (1 + 1e-5)


@pytest.mark.parametrize("weighting", ["softmax", "leftmost_hard"])
def test_mixtures_are_distributions_on_which_the_substitution_counts_more(weighting):
    model = masked(weighting=weighting)
    tokens, free = jnp.array([0, 1, 1, 0, 1, 0, 1], jnp.int32), np.ones(N, bool)
    free[[2, N - 1]] = False
    # Symbols, free positions, then position and symbol of the substitution.
    given = (
        jnp.arange(2, dtype=jnp.int32),
        jnp.asarray(free),
        jnp.int32(2),
        jnp.int32(0),
    )
    how = {"query": N - 1, "target": "activation", "steps": ascent.STEPS}
    mixture = np.asarray(ascend_mixture(model, tokens, *given, **how))
    np.testing.assert_allclose(mixture.sum(axis=1), 1, rtol=1e-12)
    assert (mixture >= 0).all()

    # By passes of all inputs, the mixture rounded to tokens first.
    chosen = [mixture.argmax(axis=1), *itertools.product(range(2), repeat=N)]
    inputs = np.where(free, np.array(chosen, np.int32), tokens)
    changed = np.where(np.arange(N) == 2, 0, inputs)
    read = jax.jit(jax.vmap(lambda x: jm.apply(model, x)[-1]))
    first, *others = np.linalg.norm(read(changed) - read(inputs), axis=1)
    assert 0 < np.median(others) <= first


def test_a_single_symbol_leaves_nothing_to_search():
    found = bounds.search_inputs(masked(vocab_size=1), 5)
    assert (found.max, found.position, found.symbol) == (0.0, None, None)


@pytest.mark.parametrize("name", ["restarts", "rounds"])
def test_an_effort_of_nothing_is_refused(name):
    with pytest.raises(jm.InputError, match=f"{name} = 0; expected an integer >= 1"):
        bounds.search_inputs(masked(), 5, **{name: 0})


@pytest.mark.parametrize(
    ("case", "length", "message"),
    [
        ({"mask": "future"}, 8, "layer 0 has mask 'future'"),
        ({}, 2000, "at most 256 classes of equal rows, and the 2000 positions"),
        ({"num_layers": 0}, 8, "the model has none"),
    ],
    ids=str,
)
def test_where_only_an_exact_one_will_do_the_reason_is_given(case, length, message):
    with pytest.raises(jm.InputError, match=message):
        exact_supremum(build(case), length, query=-1, target="activation")
