"""Scores near a tie that hard weightings met, and the answer to an ambiguous tie."""

import dataclasses
import math
import warnings
from typing import Any

from jax_models import TieError, TieReport
from jax_models.run.evaluate import AmbiguousTieWarning, TieRule, describe_tie


@dataclasses.dataclass(frozen=True)
class Ties:
    """Closest decisions of hard weightings, over the base pass and all changes."""

    gap: float  # smallest distance from a winner to the best score below its cell
    spread: float  # widest distance between scores that count as tied
    ambiguous: bool  # whether some winner was decided within rounding
    row: int  # the row of the smallest gap (or an ambiguous one)
    scores: tuple[float, float]  # the best score and the next at that row

    @staticmethod
    def none() -> "Ties":
        """Report of no comparison."""
        return Ties(math.inf, 0.0, False, 0, (0.0, 0.0))

    @staticmethod
    def of(report: TieReport) -> "Ties":
        """Host copy of a traced report."""
        high, low = (float(x) for x in report.scores)
        return Ties(
            float(report.gap),
            float(report.spread),
            bool(report.ambiguous),
            int(report.row),
            (high, low),
        )

    def merge(self, other: "Ties") -> "Ties":
        """Report of both, with the row of the more ambiguous decision."""
        worse = (not other.ambiguous, other.gap) < (not self.ambiguous, self.gap)
        kept = other if worse else self
        return Ties(
            min(self.gap, other.gap),
            max(self.spread, other.spread),
            self.ambiguous or other.ambiguous,
            kept.row,
            kept.scores,
        )


def judge_ties(model: Any, met: Ties | None, where: str, rule: TieRule) -> None:
    """Raises `TieError` or warns of an ambiguous tie, as `rule` demands."""
    if met is None or not met.ambiguous or rule == "ignore":
        return
    layers = (layer.attention.weighting for layer in model.layers)
    hard = [weighting for weighting in layers if weighting.hard]
    message = f"{where}: {describe_tie(hard, *met.scores, model.dtype)}"
    if rule == "error":
        raise TieError(message)
    # In the name of the caller's caller's caller.
    warnings.warn(message, AmbiguousTieWarning, stacklevel=4)
