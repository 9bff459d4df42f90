"""Certified upper bounds on the influence for a given input (softmax weightings)."""

from bounds.lemma5.certificate.certify import certify_influence
from bounds.lemma5.certificate.references import Certificate

__all__ = ["Certificate", "certify_influence"]
