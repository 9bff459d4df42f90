"""Training: a pure step on a source of sequences, compiled once, with explicit keys.

`train` is all that most callers need; `run_training` also keeps a checkpoint, from
which a run that was killed goes on to the same bits, and measures losses by length.
"""

from jax_models.training.checkpoint import Standing
from jax_models.training.loop import (
    LengthLosses,
    Measuring,
    TrainingRun,
    describe,
    measure_losses,
    run_training,
    train,
)
from jax_models.training.prediction import cross_entropy
from jax_models.training.settings import Training

__all__ = [
    "LengthLosses",
    "Measuring",
    "Standing",
    "Training",
    "TrainingRun",
    "cross_entropy",
    "describe",
    "measure_losses",
    "run_training",
    "train",
]
