"""No floor is above the cross-entropy of a model at any stage of its training.

Everything is enumerated: the cross-entropy, and ε of every pair of the theorems.
"""

import dataclasses

import jax
import pytest

import jax_models as jm
from bounds.entropy import measure_entropy
from jax_models.languages import get_source
from jax_models.training import Training, run_training

pytestmark = pytest.mark.usefixtures("quick_compilation")
SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 8, "d_ff": 16, "mask": "future"}


def stages(source, training, reading="last"):
    """Returns the model at every checkpoint of a training run, the first one included."""
    model = jm.init_transformer(
        jax.random.key(0),
        **SHAPE,
        vocab_size=len(source.symbols) + (reading == "query"),
        dtype="float64",
        architecture=jm.Architecture(num_classes=source.num_classes),
    )
    models = []
    run_training(
        model,
        source,
        dataclasses.replace(training, reading=reading),
        jax.random.key(1),
        progress=lambda standing: models.append(standing.state[0]),
    )
    return models


def check(source, models, lengths, reading="last"):
    """Holds the floors under the losses; returns the losses of the last length."""

    def held(model, n):
        found = measure_entropy(model, source, n, reading=reading)
        assert found.is_enumerated
        assert found.floor.value <= found.cross_entropy, (n, found)
        # To rounding, what the exact ε leaves is no less than the optimum.
        assert found.floor.value >= source.optimal_entropy(n) * (1 - 1e-12)
        return found.cross_entropy

    return [[held(model, n) for n in lengths][-1] for model in models]


def test_no_floor_is_above_the_loss_of_a_model_that_learns_parity():
    source = get_source("parity", 0.5)
    training = Training(
        5, 240, 32, learning_rate=1e-2, all_positions=True, checkpoint_every=80
    )
    models = stages(source, training)
    losses = check(source, models, (5,))
    level = source.levels(5)
    # The stages differ: from no better than a constant to what needs the whole prefix,
    # where the floor of ε = 0, the last-symbol level, would be above the loss.
    assert losses[0] > level.unigram
    assert losses[-1] < level.last_symbol - 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("name", "longest"), [("parity", 10), ("dyck2", 8)])
@pytest.mark.parametrize(
    ("p", "reading", "all_positions"), [(0.5, "last", True), (0.25, "query", False)]
)
def test_no_floor_is_above_the_loss_at_any_length(
    name, longest, p, reading, all_positions
):
    source = get_source(name, p)
    training = Training(
        longest,
        900,
        32,
        all_positions=all_positions,
        num_lengths=longest // 2,
        learning_rate=1e-2,
        checkpoint_every=300,
    )
    models = stages(source, training, reading)
    losses = check(source, models, range(1, longest + 1), reading)
    assert min(losses[1:]) < losses[0]
