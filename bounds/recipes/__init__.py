"""Scans by their names in computational biology, each with its published definition."""

from bounds.influence.table.lines import Residues
from bounds.recipes.edits import deletions, mutagenesis
from bounds.recipes.maps import categorical_jacobian, dependency_map
from bounds.recipes.marginals import masked_marginals, wild_type_marginals

__all__ = [
    "Residues",
    "categorical_jacobian",
    "deletions",
    "dependency_map",
    "masked_marginals",
    "mutagenesis",
    "wild_type_marginals",
]
