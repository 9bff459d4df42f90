"""What the certificates know of each score: one file a score."""

from bounds.certificate.scores.additive import AdditiveRule
from bounds.certificate.scores.base import KeysAtCentres, ScoreRule, score_rule
from bounds.certificate.scores.dot_product import DotProductRule

__all__ = ["AdditiveRule", "DotProductRule", "KeysAtCentres", "ScoreRule", "score_rule"]
