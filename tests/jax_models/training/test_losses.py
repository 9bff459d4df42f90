"""The loss is the cross-entropy of the definition, in a batch and by length."""

import itertools

import jax
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.training import cross_entropy, measure_losses
from tests.architecture import small_model
from tests.written import written

SOURCE = jm.ParitySource(0.3)
P = SOURCE.end_probability
SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 8, "d_ff": 8, "num_classes": 3}


def make(**options):
    options = {"vocab_size": 3, "mask": "future", "dtype": "float64", **options}
    return small_model(**SHAPE, **options)


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
    model = make()
    tokens = np.asarray(SOURCE.sample(jax.random.key(3), 4, 3))
    loss = jax.jit(cross_entropy, static_argnums=(1, 3, 4))
    found = float(loss(model, SOURCE, tokens, all_positions, reading))
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
    model = make()
    found = measure_losses(model, SOURCE, (1, 4), jax.random.key(5), count=4096)
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
    again = measure_losses(model, SOURCE, (4,), jax.random.key(5), count=4096)
    np.testing.assert_allclose(again.mean, found.mean[1:], rtol=1e-12)
