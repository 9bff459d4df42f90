"""Rules of scores in certificates, one file for each score."""

from bounds.lemma5.certificate.scores.additive import AdditiveRule
from bounds.lemma5.certificate.scores.base import KeysAtCentres, ScoreRule, score_rule
from bounds.lemma5.certificate.scores.dot_product import DotProductRule

__all__ = ["AdditiveRule", "DotProductRule", "KeysAtCentres", "ScoreRule", "score_rule"]
