"""Certified upper bounds on the influence for a given input (softmax weightings)."""

from bounds.lemma5.certificate.certify import Certificate, certify_influence

__all__ = ["Certificate", "certify_influence"]
