"""What the certificates know of each score: one file a score."""

from bounds.certificate.scores.additive import AdditiveRule
from bounds.certificate.scores.base import MovedKeys, ScoreRule, score_rule
from bounds.certificate.scores.dot_product import DotProductRule

__all__ = ["AdditiveRule", "DotProductRule", "MovedKeys", "ScoreRule", "score_rule"]
