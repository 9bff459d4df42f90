"""What a scan found: values with their ends, and the names of their axes."""

import dataclasses
from typing import Any

import numpy as np

from bounds.influence.ties import Ties


@dataclasses.dataclass(frozen=True)
class Scan:
    """What every substitution changes, or what was made of it.

    `values` have the axes that `axes` names, of "position", "symbol", "row" and "target"
    (one's own function names none beyond "position"). They are NaN where nothing is
    substituted. `lower` and `upper` enclose them; where they are `estimated`, all three are
    one. A cell that no substitution can move, such as a row before the position under a
    causal mask, is exactly 0 and so are its ends.
    """

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    axes: tuple[str, ...]
    positions: np.ndarray  # [P]
    symbols: np.ndarray  # [K], or [P, K] where they go with the position, -1 for none
    rows: np.ndarray  # [R], one where there is no such axis
    target_symbols: np.ndarray | None  # [T] where the target has an axis of symbols
    tokens: np.ndarray  # [n]
    target: Any  # "activation", "logits", or a value
    kind: str  # "exact" or "estimated"
    method: str
    reason: str  # why this method
    substitutions: int
    ties: Ties | None
    seconds: float

    def __repr__(self) -> str:
        """One line: the shape, the largest value and where it is."""
        shape = " x ".join(
            f"{size} {name}"
            for size, name in zip(self.values.shape, self.axes, strict=False)
        )
        there = ~np.isnan(self.values)
        largest = f"{np.abs(self.values[there]).max():.6g}" if there.any() else "none"
        return (
            f"Scan({shape}, largest={largest} [{self.kind}], method={self.method!r}, "
            f"substitutions={self.substitutions})"
        )
