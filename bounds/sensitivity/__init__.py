"""Average sensitivity: the number of positions whose substitution flips the output's sign."""

from bounds.sensitivity.average import Sensitivity, average_sensitivity

__all__ = ["Sensitivity", "average_sensitivity"]
