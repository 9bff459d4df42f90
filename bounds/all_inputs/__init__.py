"""The exact supremum of the influence over all inputs of a length, where rows lump.

A new way through the inputs is one file with a `Plan` and a line in `choose_plan`.
"""

from bounds.all_inputs.supremum import Supremum, exact_supremum, supremum

__all__ = ["Supremum", "exact_supremum", "supremum"]
