"""Certified upper bounds on the influence for a given input (softmax weightings)."""

from bounds.certificate.certify import certify_influence
from bounds.certificate.references import Certificate

__all__ = ["Certificate", "certify_influence"]
