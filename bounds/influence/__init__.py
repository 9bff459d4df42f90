"""Influence: the exact change of a model's output when one input symbol is replaced.

One entry point, `compute_influence`, stands over a table of methods, which compute all
influences, and screens, which bound all and compute few. A new method is one file with
a `Method`, or a `Screen`, and one row in the table of `choice.py`.
"""

from bounds.influence.build import TableOptions, build_request
from bounds.influence.choice import METHODS, SCREENS
from bounds.influence.compute import compute_influence
from bounds.influence.inputs.callable import Callable
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Method, Run, Screen
from bounds.influence.methods.exhaustive import Exhaustive
from bounds.influence.methods.incremental import Incremental
from bounds.influence.methods.lumped import Lumped
from bounds.influence.methods.partial import Partial
from bounds.influence.methods.proposed import Proposed
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Influence, MeasuredError, Ties
from bounds.influence.screening.ladder import Screened
from bounds.influence.targets.base import Target
from bounds.influence.targets.function import TargetFunction
from bounds.influence.targets.log_odds import LogOdds
from bounds.influence.targets.log_probability import (
    LogProbabilities,
    LogProbability,
    Loss,
)
from bounds.influence.targets.log_probability_sum import LogProbabilitySum
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.influence.targets.pooled import Pooled
from bounds.influence.targets.table import TARGETS

__all__ = [
    "METHODS",
    "SCREENS",
    "TARGETS",
    "Block",
    "Callable",
    "Exhaustive",
    "Incremental",
    "Influence",
    "InfluenceRequest",
    "LogOdds",
    "LogProbabilities",
    "LogProbability",
    "LogProbabilitySum",
    "LogitDifference",
    "Loss",
    "Lumped",
    "MeasuredError",
    "Method",
    "Partial",
    "Pooled",
    "Proposed",
    "Run",
    "Screen",
    "Screened",
    "SharedBase",
    "TableOptions",
    "Target",
    "TargetFunction",
    "Ties",
    "build_request",
    "compute_influence",
]
