"""Weighting functions: how attention scores become weights, as mergeable summaries.

A new weighting is one file with a `Weighting` and one row in `WEIGHTINGS`.
"""

from jax_models.weighting.average_hardmax import AverageHardmax
from jax_models.weighting.base import Column, MovedKeys, TieReport, Weighting, contract
from jax_models.weighting.cells import HardWeighting
from jax_models.weighting.softmax import Softmax
from jax_models.weighting.unique_hardmax import LeftmostHardmax, RightmostHardmax

WEIGHTINGS: dict[str, type[Weighting]] = {
    weighting.name: weighting
    for weighting in (Softmax, LeftmostHardmax, RightmostHardmax, AverageHardmax)
}

__all__ = [
    "WEIGHTINGS",
    "AverageHardmax",
    "Column",
    "HardWeighting",
    "LeftmostHardmax",
    "MovedKeys",
    "RightmostHardmax",
    "Softmax",
    "TieReport",
    "Weighting",
    "contract",
]
