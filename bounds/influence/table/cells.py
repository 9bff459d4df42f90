"""Cells of a scan: values with their ends, and the names of their axes.

A scan is a table of changes of an output by edits of an input at each position; a cell
is one of its numbers, with a lower and an upper bound, its ends. The target is the
vector of numbers that is read from the model's output at a watched row.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.influence.result import Answer


@dataclasses.dataclass(frozen=True)
class Cells(Answer):
    """Values of a scan over named axes, each with its lower and upper end."""

    values: Float[np.ndarray, "..."]
    lower: Float[np.ndarray, "..."]
    upper: Float[np.ndarray, "..."]
    enclosed: Bool[np.ndarray, "..."]  # where ends enclose
    axes: tuple[str, ...]
    positions: Int[np.ndarray, "positions"]
    symbols: Int[np.ndarray, "*positions symbols"]  # padded with -1
    # one where there is no such axis, none where it is each position's own
    rows: Int[np.ndarray, "rows"]
    target_symbols: Int[np.ndarray, "classes"] | None  # of the target's axis
    tokens: Int[np.ndarray, "tokens"]
    base_of: Callable[[], Any] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    @property
    def edit(self) -> str:
        """Edit of each position as a participle: "replaced", or "deleted"."""
        return "replaced" if self.symbols.size else "deleted"

    @functools.cached_property
    def base(self) -> Float[np.ndarray, "..."] | None:
        """Values of the target for the input itself, of which `values` are changes.

        The axes are those of `values`, of length 1 along those that the base does not
        have: values + base are the targets of the changed inputs. Of masked marginals,
        which are no changes, the log-odds of the unmasked input. None where `values` are
        norms or reductions, or of a target that compares two outputs. One pass, when first
        read.
        """
        return None if self.base_of is None else self.base_of()

    def place(self, cell: tuple[int, ...]) -> dict[str, Any]:
        """Position, symbol, row and target entry of a cell; None for a reduced axis.

        Args:
            cell: index into `values`.
        """
        at = dict(zip(self.axes, cell, strict=False))
        p, symbol, row, target = at["position"], None, None, at.get("target")
        if "symbol" in at:
            own = self.symbols if self.symbols.ndim == 1 else self.symbols[p]
            symbol = int(own[at["symbol"]])
        if "row" in at or self.rows.size == 1:
            row = int(self.rows[at.get("row", 0)])
        # Every position is watched at its own row.
        elif not self.rows.size:
            row = int(self.positions[p])
        if target is not None and self.target_symbols is not None:
            target = int(self.target_symbols[target])
        position = int(self.positions[p])
        return {"position": position, "symbol": symbol, "row": row, "target": target}
