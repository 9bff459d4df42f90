"""Certified upper bounds on output changes by replacing one token of a given input."""

from bounds.lemma5.certificate.certify import Certificate, certify_influence

__all__ = ["Certificate", "certify_influence"]
