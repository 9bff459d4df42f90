"""Exact single-position influence: one entry point over a table of methods.

A new method is one file with a `Method`, or a `Screen`, and one row in the table of
`compute`.
"""

from bounds.influence.callable import Callable
from bounds.influence.choice import METHODS, SCREENS
from bounds.influence.compute import compute_influence
from bounds.influence.method import Method, Screen
from bounds.influence.problem import Problem
from bounds.influence.result import Block, Influence, MeasuredError
from bounds.influence.row_targets import LogProbabilitySum, Pooled, RowsTarget
from bounds.influence.shared_base import SharedBase
from bounds.influence.targets import (
    LogitDifference,
    LogOdds,
    LogProbabilities,
    LogProbability,
    Loss,
    TargetFunction,
    TargetOperation,
)
from bounds.influence.ties import Ties

__all__ = [
    "METHODS",
    "SCREENS",
    "Block",
    "Callable",
    "Influence",
    "LogOdds",
    "LogProbabilities",
    "LogProbability",
    "LogProbabilitySum",
    "LogitDifference",
    "Loss",
    "MeasuredError",
    "Method",
    "Pooled",
    "Problem",
    "RowsTarget",
    "Screen",
    "SharedBase",
    "TargetFunction",
    "TargetOperation",
    "Ties",
    "compute_influence",
]
