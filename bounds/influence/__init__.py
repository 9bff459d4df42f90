"""Exact single-position influence: one entry point over a table of methods.

A new method is one file with a `Method` and one row in `METHODS`.
"""

from bounds.influence.base import (
    Block,
    Influence,
    Method,
    Problem,
    SharedBase,
    Ties,
)
from bounds.influence.compute import METHODS, compute_influence
from bounds.influence.sharding import sharded

__all__ = [
    "METHODS",
    "Block",
    "Influence",
    "Method",
    "Problem",
    "SharedBase",
    "Ties",
    "compute_influence",
    "sharded",
]
