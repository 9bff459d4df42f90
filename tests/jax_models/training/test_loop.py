"""Losses by the definition; training lowers them on the lengths that it draws."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.training import cross_entropy, measure_losses
from tests.architecture import small_model, with_architecture
from tests.bounds.influence.expect import refused
from tests.written import written

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
        ({}, {"num_lengths": 11}, "num_lengths = 11; expected an integer from 1 to 10"),
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


BIASED = jm.ParitySource(0.3)
P = BIASED.end_probability


def one_layer():
    shape = {"num_heads": 2, "d_model": 8, "d_ff": 8, "vocab_size": 3, "num_classes": 3}
    return small_model(**shape, mask="future", dtype="float64")


def loss_after(model, prefix, end=()):
    """The definition, in NumPy: the loss of the symbol after a prefix."""
    logits = reference.logits(*written(model), [*prefix, *end])[-1]
    logs = logits - np.log(np.exp(logits).sum())
    even = [(1 - P) / 2, (1 - P) / 2, P]
    return -np.dot(even if sum(prefix) % 2 == 0 else [0.5, 0.5, 0.0], logs)


@pytest.mark.parametrize(
    ("all_positions", "reading"), [(False, "last"), (True, "last"), (False, "query")]
)
def test_the_loss_is_the_cross_entropy_by_the_definition(all_positions, reading):
    model = one_layer()
    tokens = np.asarray(BIASED.sample(jax.random.key(3), 4, 3))
    loss = jax.jit(cross_entropy, static_argnums=(1, 3, 4))
    found = float(loss(model, BIASED, tokens, all_positions, reading))
    end = [2] if reading == "query" else []
    wanted = np.mean(
        [
            loss_after(model, sequence[: t + 1].tolist(), end)
            for sequence in tokens
            for t in (range(4) if all_positions else [3])
        ]
    )
    assert found == pytest.approx(wanted, rel=1e-12)
    # Reading one symbol too early, or not at the end token, would be noticed.
    wrong = np.mean([loss_after(model, x[:-1].tolist(), end) for x in tokens])
    assert found != pytest.approx(wrong, rel=1e-3)


def test_losses_by_length_are_within_their_errors_of_the_exact_ones():
    model = one_layer()
    found = measure_losses(model, BIASED, (1, 4), jax.random.key(5), count=4096)
    for at, n in enumerate((1, 4)):
        exact = 0.0
        for bits in itertools.product((0, 1), repeat=n):
            states = np.cumsum([0, *bits[:-1]]) % 2
            # P(x | length >= n) = 2^-n (1-p)^#{t < n: S_t even} / P(length >= n).
            probability = (1 - P) ** np.sum(states == 0) / 2**n
            probability /= (1 - P) * (1 - P / 2) ** (n - 1)
            exact += probability * loss_after(model, bits)
        assert abs(found.mean[at] - exact) < 4 * found.standard_error[at]
        assert 0 < found.standard_error[at] < 0.02
    again = measure_losses(model, BIASED, (4,), jax.random.key(5), count=4096)
    np.testing.assert_allclose(again.mean, found.mean[1:], rtol=1e-12)
