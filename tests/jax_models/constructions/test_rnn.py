"""The recurrent network is its recurrence, and is trained by the same loop."""

import jax
import numpy as np
import pytest

import jax_models as jm
from jax_models.constructions.rnn import final_state, hidden_states, init_elman
from jax_models.training import Training, measure_losses, run_training

pytestmark = pytest.mark.usefixtures("quick_compilation")
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
    last = final_state(network, jax.numpy.asarray(tokens))
    np.testing.assert_allclose(last, found[-1], rtol=1e-13)


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


@pytest.mark.parametrize("name", ["width", "vocab_size", "num_classes"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(jm.InputError, match=f"{name} = 0"):
        init_elman(jax.random.key(0), **{"width": 2, **SHAPE, name: 0})


def test_a_network_with_too_few_classes_is_refused():
    network = init_elman(
        jax.random.key(0), width=2, vocab_size=2, num_classes=2, dtype="float64"
    )
    with pytest.raises(jm.InputError, match="read-out has 2 classes"):
        run_training(network, jm.ParitySource(0.5), Training(4, 1), jax.random.key(0))
