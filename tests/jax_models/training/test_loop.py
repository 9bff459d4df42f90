"""Training lowers the loss below what symbols alone can do, on the lengths that it draws."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.training import cross_entropy
from tests.architecture import with_architecture
from tests.bounds.influence.expect import refused

SOURCE = jm.ParitySource(0.5)
SHAPE = {"num_layers": 2, "num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}
UNIGRAM = SOURCE.levels(10).unigram
TRAINING = jm.Training(length=10, steps=300, batch_size=64, learning_rate=1e-2)


def make(**options):
    options = {**SHAPE, "num_classes": 3, **options}
    return jm.init_transformer(jax.random.key(0), **with_architecture(**options))


def test_a_model_learns_more_of_parity_than_symbol_frequencies():
    model, losses = jm.train(make(), SOURCE, TRAINING, jax.random.key(1))
    assert losses.shape == (300,)
    assert losses[0] > UNIGRAM
    # On sequences that it was not trained on; the standard error is below 0.005.
    tokens = SOURCE.sample(jax.random.key(2), 10, 4096)
    learnt = float(
        jax.jit(cross_entropy, static_argnums=(1, 3))(model, SOURCE, tokens, False)
    )
    assert learnt < UNIGRAM - 0.02
    assert learnt > SOURCE.optimal_entropy(1)


@pytest.mark.parametrize(
    ("options", "changed", "complaint"),
    [
        ({"num_classes": None}, {}, "no read-out"),
        ({"weighting": "average_hard"}, {}, "no gradient"),
        ({"mask": "none"}, {"all_positions": True}, "see what it is to predict"),
        ({}, {"steps": 0}, "steps = 0"),
        ({}, {"weight_decay": -1.0}, "weight_decay = -1.0"),
        ({}, {"num_lengths": 11}, "only 10 lengths"),
        ({}, {"reading": "first"}, "one of last, query"),
        ({}, {"reading": "query"}, "has 2 symbols; the source needs 3, an end token"),
        ({"num_classes": 2}, {}, "read-out has 2 classes; the source needs 3"),
        (
            {"mask": "future"},
            {"all_positions": True, "reading": "query"},
            "the last symbol is read",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(options, changed, complaint):
    model, key = make(**options), jax.random.key(0)
    with refused(complaint):
        jm.train(model, SOURCE, dataclasses.replace(TRAINING, **changed), key)


def test_a_loss_that_is_not_finite_is_an_error():
    model = make()
    broken = dataclasses.replace(model, embedding=model.embedding * 1e30)
    with refused(r"loss is (nan|inf) before the first step"):
        jm.train(broken, SOURCE, TRAINING, jax.random.key(0))


def drawn(training, step, count=400):
    keys = jax.random.split(jax.random.key(0), count)
    which = jax.vmap(lambda key: training.draw_length(key, jnp.asarray(step)))(keys)
    return {training.lengths[at] for at in np.asarray(which)}


@pytest.mark.parametrize(
    ("length", "num_lengths", "lengths"),
    [(40, 1, (40,)), (7, 3, (3, 5, 7)), (3, 3, (1, 2, 3))],
)
def test_lengths_are_spaced_evenly_up_to_the_longest(length, num_lengths, lengths):
    assert jm.Training(length, 1, num_lengths=num_lengths).lengths == lengths


@pytest.mark.parametrize(
    ("growth", "step", "lengths"),
    [
        (0.0, 0, {10, 20, 30, 40}),
        (0.5, 16, {10}),
        (0.5, 17, {10, 20}),
        (0.5, 34, {10, 20, 30}),
        (0.5, 50, {10, 20, 30, 40}),
    ],
)
def test_longer_lengths_join_over_the_share_of_the_steps(growth, step, lengths):
    training = jm.Training(40, 100, num_lengths=4, growth=growth)
    assert drawn(training, step) == lengths
