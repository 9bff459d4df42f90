"""The networks that are held against Theorem 6: trained here, or trained before.

Each is trained on every prefix of sequences of 40 symbols, in float32. A run keeps its
standing beside its model, so that the benchmark can be stopped at any moment.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

import jax_models as jm
from jax_models.constructions.rnn import ElmanNetwork, init_elman
from jax_models.languages import get_source
from jax_models.languages.source import Source
from jax_models.training import (
    Measuring,
    Training,
    TrainingRun,
    describe,
    run_training,
)

LENGTH = 40
MEASURING = Measuring((5, 10, 20, 40), 512)
SHAPE: dict[str, Any] = {
    "num_layers": 2,
    "num_heads": 4,
    "d_model": 32,
    "d_ff": 128,
    "mask": "future",
    "layer_norm": "pre",
}
WIDTH = 16  # of the recurrent network


@dataclasses.dataclass(frozen=True)
class Subject:
    """A network and what it is trained on.

    Attributes:
        words: What the figure calls it.
        language: Its source.
        p: Of the source.
        position: The position encoding; None for the recurrent network.
        training: How it is trained.
    """

    words: str
    language: str
    p: float
    position: str | None
    training: Training

    @property
    def source(self) -> Source:
        """What it predicts."""
        return get_source(self.language, self.p)

    def first_network(self) -> Any:
        """Returns the weights that training starts from."""
        key, classes = jax.random.key(0), self.source.num_classes
        symbols = len(self.source.symbols)
        if self.position is None:
            return init_elman(key, width=WIDTH, vocab_size=symbols, num_classes=classes)
        return jm.init_transformer(
            key,
            **SHAPE,
            position=self.position,
            vocab_size=symbols,
            architecture=jm.Architecture(final_norm=True, num_classes=classes),
        )


def _training(steps: int, **changed: Any) -> Training:
    settings: dict[str, Any] = {
        "batch_size": 32,
        "learning_rate": 3e-3,
        "all_positions": True,
        "checkpoint_every": 1000,
        **changed,
    }
    return Training(LENGTH, steps, **settings)


SUBJECTS = {
    "parity": Subject("no positions", "parity", 0.5, "none", _training(12000)),
    "parity_sinusoidal": Subject(
        "sinusoidal positions", "parity", 0.5, "sinusoidal", _training(12000)
    ),
    "dyck2": Subject("no positions", "dyck2", 0.25, "none", _training(8000)),
    "parity_rnn": Subject(
        "recurrent",
        "parity",
        0.5,
        None,
        _training(4000, num_lengths=8, growth=0.5),
    ),
}


def train_subject(name: str, out: Path) -> TrainingRun:
    """Trains a network, or goes on where its training stands.

    Args:
        name: A key of `SUBJECTS`.
        out: Folder of the checkpoints.

    Returns:
        The run, in float32.
    """
    subject = SUBJECTS[name]
    out.mkdir(parents=True, exist_ok=True)
    return run_training(
        subject.first_network(),
        subject.source,
        subject.training,
        jax.random.key(1),
        measuring=MEASURING,
        checkpoint=out / f"{name}.checkpoint.safetensors",
        progress=lambda standing: print(f"{name}: {describe(standing)}", flush=True),
    )


def in_float64(network: Any) -> Any:
    """Returns a network with the same weights in float64."""
    if isinstance(network, ElmanNetwork):
        return jax.tree.map(lambda leaf: leaf.astype("float64"), network)
    return jm.with_dtype(network, "float64")
