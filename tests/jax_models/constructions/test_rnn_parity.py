"""The recurrent network for PARITY: exact at every length, its influence never falls."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from jax_models.constructions import rnn_parity
from jax_models.constructions.rnn import final_state, hidden_states
from jax_models.training import cross_entropy

pytestmark = pytest.mark.usefixtures("quick_compilation")
P = 0.3
NETWORK = rnn_parity(P, 5.0, dtype="float64")
STATES = jax.jit(jax.vmap(functools.partial(hidden_states, NETWORK)))
FINAL = jax.jit(functools.partial(final_state, NETWORK))


def test_the_units_add_up_to_the_parity_of_every_prefix_of_200_strings():
    strings = jm.ParitySource(P).sample(jax.random.key(0), 1000, 200)
    states = np.asarray(STATES(strings))
    assert set(np.unique(states)) == {0.0, 1.0}
    np.testing.assert_array_equal(states.sum(axis=2), np.cumsum(strings, axis=1) % 2)


def test_a_flip_changes_the_sum_by_exactly_one_in_200_strings_of_length_1000():
    strings = np.asarray(jm.ParitySource(P).sample(jax.random.key(0), 1000, 200))
    before = np.asarray(STATES(strings))[:, -1].sum(axis=1)
    at = np.random.default_rng(0).integers(0, 1000, 200)
    at[:2] = 0, 999
    flipped = strings.copy()
    flipped[np.arange(200), at] ^= 1
    after = np.asarray(STATES(flipped))[:, -1].sum(axis=1)
    np.testing.assert_array_equal(np.abs(after - before), 1.0)


def held(function):
    return bounds.Callable(lambda _, x: function(x), batched=False, vocab_size=2)


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_every_influence_is_one_at_every_length(n):
    tokens = np.random.default_rng(n).integers(0, 2, n)
    found = bounds.compute_influence(
        held(FINAL), tokens, method="exhaustive", include_query=True
    )
    substituted = ~np.isnan(found.lower)
    assert substituted.sum() == n
    np.testing.assert_allclose(found.lower[substituted], 1, rtol=1e-9)
    np.testing.assert_allclose(found.upper[substituted], 1, rtol=1e-9)
    assert found.max == 1


def test_a_network_that_forgets_would_be_noticed():
    leaky = functools.partial(
        final_state, jax.tree.map(lambda leaf: leaf * 0.99, NETWORK)
    )
    tokens = np.ones(100, np.int64)
    found = bounds.compute_influence(held(leaky), tokens, method="exhaustive")
    assert np.nanmin(found.upper) < 0.5


@pytest.mark.parametrize("sharpness", [0.0, 2.0, 20.0])
def test_the_cross_entropy_is_the_optimum_and_what_the_sharpness_leaves(sharpness):
    source, n = jm.ParitySource(P), 6
    strings = np.array(list(itertools.product((0, 1), repeat=n)))
    states = np.cumsum(strings, axis=1)[:, :-1] % 2
    weights = (1 - P) ** (1 + (states == 0).sum(axis=1)) / 2**n
    weights /= weights.sum()
    network = rnn_parity(P, sharpness, dtype="float64")
    losses = jax.jit(jax.vmap(lambda x: cross_entropy(network, source, x[None], False)))
    found = float(np.asarray(losses(jnp.asarray(strings))) @ weights)
    wanted = source.optimal_entropy(n)
    wanted += math.log1p(math.exp(-sharpness) * P / (1 - P)) / 2
    assert found == pytest.approx(wanted, rel=1e-13)
    assert found > source.optimal_entropy(n) - 1e-15


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [((0.0, 1.0), "p = 0.0"), ((1.0, 1.0), "p = 1.0"), ((0.5, -1.0), "B = -1.0")],
)
def test_numbers_out_of_range_are_refused(arguments, complaint):
    with pytest.raises(jm.InputError, match=complaint):
        rnn_parity(*arguments)
