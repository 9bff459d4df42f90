"""The recurrent network is its recurrence, is trained, and follows PARITY at every length."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from jax_models.constructions import rnn_parity
from jax_models.constructions.rnn import hidden_states, init_elman
from jax_models.training import Training, cross_entropy, measure_losses, run_training
from tests.bounds.influence.expect import refused
from tests.jax_models.programs.definitions import all_strings

SHAPE = {"vocab_size": 2, "num_classes": 3, "dtype": "float64"}


def test_states_follow_the_recurrence():
    network = init_elman(jax.random.key(0), width=5, **SHAPE)
    rng = np.random.default_rng(0)
    network = jax.tree.map(lambda x: np.asarray(rng.normal(size=x.shape)), network)
    tokens = np.array([0, 1, 1, 0, 1])
    state = np.zeros(5)
    wanted = []
    for token in tokens:
        new = np.maximum(
            network.recurrent @ state + network.embedding[token] + network.bias, 0
        )
        assert (new != state).any()
        state = new
        wanted.append(state)
    network = jax.tree.map(jax.numpy.asarray, network)
    found = hidden_states(network, jax.numpy.asarray(tokens))
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.slow
def test_a_small_network_learns_parity_and_keeps_it_at_25_times_the_length():
    source = jm.ParitySource(0.5)
    network = init_elman(
        jax.random.key(0), width=16, vocab_size=2, num_classes=3, dtype="float32"
    )
    training = Training(
        40, 3000, 32, all_positions=True, num_lengths=8, growth=0.5, learning_rate=3e-3
    )
    run = run_training(network, source, training, jax.random.key(1))
    found = measure_losses(
        run.network, source, (40, 1000), jax.random.key(2), count=512
    )
    optimal = source.optimal_entropy(1000)
    assert (found.mean < optimal + 4 * found.standard_error + 0.005).all(), found


def test_a_width_below_one_is_refused():
    with refused("width = 0"):
        init_elman(jax.random.key(0), width=0, **SHAPE)


P = 0.3
NETWORK = rnn_parity(P, 5.0, dtype="float64")
STATES = jax.jit(jax.vmap(functools.partial(hidden_states, NETWORK)))


def final_state(network):
    return jax.jit(lambda tokens: hidden_states(network, tokens)[-1])


def test_the_units_add_up_to_the_parity_of_every_prefix_of_200_strings():
    strings = jm.ParitySource(P).sample(jax.random.key(0), 1000, 200)
    states = np.asarray(STATES(strings))
    assert set(np.unique(states)) == {0.0, 1.0}
    np.testing.assert_array_equal(states.sum(axis=2), np.cumsum(strings, axis=1) % 2)


def held(function):
    return bounds.Callable(lambda _, x: function(x), batched=False, vocab_size=2)


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_every_influence_is_one_at_every_length(n):
    tokens = np.random.default_rng(n).integers(0, 2, n)
    found = bounds.compute_influence(
        held(final_state(NETWORK)), tokens, method="exhaustive", include_query=True
    )
    substituted = ~np.isnan(found.lower)
    assert substituted.sum() == n
    np.testing.assert_allclose(found.lower[substituted], 1, rtol=1e-9)
    np.testing.assert_allclose(found.upper[substituted], 1, rtol=1e-9)
    assert found.max == 1


def test_a_network_that_forgets_would_be_noticed():
    leaky = final_state(jax.tree.map(lambda leaf: leaf * 0.99, NETWORK))
    tokens = np.ones(100, np.int64)
    found = bounds.compute_influence(held(leaky), tokens, method="exhaustive")
    assert np.nanmin(found.upper) < 0.5


@pytest.mark.parametrize("sharpness", [0.0, 2.0, 20.0])
def test_the_cross_entropy_is_the_optimum_and_what_the_sharpness_leaves(sharpness):
    source, n = jm.ParitySource(P), 6
    strings = all_strings(2, n)
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
