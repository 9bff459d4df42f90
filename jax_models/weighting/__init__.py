"""Weighting functions from attention scores to weights, by mergeable summaries.

A summary is what a query row keeps of a block of keys, enough to merge it with others.

A new weighting is one file with a `Weighting` and one row in `WEIGHTINGS`.
"""

from typing import Any

from jax_models.arguments import choose_name, refuse_unread
from jax_models.weighting.average_hardmax import AverageHardmax
from jax_models.weighting.base import (
    Column,
    MovedKeys,
    TieReport,
    Tile,
    Weighting,
    contract,
    contract_apart,
    spread_of,
)
from jax_models.weighting.hard import HardWeighting
from jax_models.weighting.softmax import Softmax
from jax_models.weighting.unique_hardmax import LeftmostHardmax, RightmostHardmax

WEIGHTINGS: dict[str, type[Weighting]] = {
    weighting.name: weighting
    for weighting in (Softmax, LeftmostHardmax, RightmostHardmax, AverageHardmax)
}
HARD_WEIGHTINGS = tuple(name for name, one in WEIGHTINGS.items() if one.hard)


def make_weighting(name: str, tie_resolution: float | None = None) -> Weighting:
    """Returns the weighting called `name`.

    Args:
        name: softmax, leftmost_hard, rightmost_hard or average_hard.
        tie_resolution: width of a cell, for the hard ones: scores in one cell are tied.

    Raises:
        InputError: for an unknown name, a width for softmax, or one that is not positive.
    """
    kind: Any = WEIGHTINGS[choose_name("weighting", name, WEIGHTINGS)]
    if kind.hard:
        return kind(tie_resolution=tie_resolution)
    refuse_unread("tie_resolution", tie_resolution, None, f"{name} has no score cells")
    return kind()


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
    "Tile",
    "Weighting",
    "contract",
    "contract_apart",
    "make_weighting",
    "spread_of",
]
