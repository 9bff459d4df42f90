"""The supremum of the influence over all inputs of a length: exact, or by a search.

An influence is the norm of the change of the watched output when one token is replaced;
the supremum is exact where inputs are counts of a few classes of equal rows. A new
evaluation of the inputs is one file, a word of `InputPlan` and a line in `choose_plan`.
"""

from bounds.all_inputs.supremum import Supremum, exact_supremum, search_inputs, supremum

__all__ = ["Supremum", "exact_supremum", "search_inputs", "supremum"]
