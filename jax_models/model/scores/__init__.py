"""Attention scores: functions of a query and a key.

A new score is one file with a `Score` and one row in `SCORES`.
"""

from jax_models.model.scores.additive import AdditiveScore
from jax_models.model.scores.base import PairwiseScore, RowMoves, Score
from jax_models.model.scores.dot_product import DotProductScore

SCORES: dict[str, Score] = {
    "dot_product": DotProductScore(scaled=False),
    "scaled_dot_product": DotProductScore(scaled=True),
    "additive": AdditiveScore(),
}

__all__ = [
    "SCORES",
    "AdditiveScore",
    "DotProductScore",
    "PairwiseScore",
    "RowMoves",
    "Score",
]
