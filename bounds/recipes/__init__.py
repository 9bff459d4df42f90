"""Scans by the names of their field, each with its published definition."""

from bounds.influence.table.residues import Residues
from bounds.recipes.deletions import deletions
from bounds.recipes.maps import categorical_jacobian, dependency_map
from bounds.recipes.marginals import masked_marginals, wild_type_marginals
from bounds.recipes.mutagenesis import mutagenesis

__all__ = [
    "Residues",
    "categorical_jacobian",
    "deletions",
    "dependency_map",
    "masked_marginals",
    "mutagenesis",
    "wild_type_marginals",
]
