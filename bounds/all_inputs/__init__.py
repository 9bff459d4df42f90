"""The supremum of the influence over all inputs: exact where rows lump, else a search.

A new way through the inputs is one file, a word of `InputPlan` and a line in
`choose_plan`.
"""

from bounds.all_inputs.supremum import Supremum, exact_supremum, search_inputs, supremum

__all__ = ["Supremum", "exact_supremum", "search_inputs", "supremum"]
