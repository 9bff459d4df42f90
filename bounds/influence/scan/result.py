"""What a scan found: values with their ends, and the names of their axes."""

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.influence.ties import Ties

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    def to_csv(
        self, path: str | os.PathLike[str], name: Callable[[int], str] | None = None
    ) -> None:
        """Writes a line for each cell in which something is substituted.

        Args:
            path: the file, with the columns position, symbol (empty where a cell is of
                all), row, target (where it has an axis), value, lower and upper.
            name: of a symbol, as `Tokenizer.name`; adds wild_type and symbol_name.

        Raises:
            OSError: the file cannot be written.
        """
        from bounds.influence.scan.export import write_table

        write_table(self, path, name)

    def to_npz(self, path: str | os.PathLike[str]) -> None:
        """Writes the arrays with their axes as a NumPy archive.

        Args:
            path: the file, with values, lower, upper, axes, positions, symbols, rows,
                tokens, and target_symbols where there are some.

        Raises:
            OSError: the file cannot be written.
        """
        from bounds.influence.scan.export import write_arrays

        write_arrays(self, path)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        quantity: str = "change",
        name: Callable[[int], str] | None = None,
    ) -> "Figure":
        """Draws a map of rows against positions, or a heat map of substitutes.

        Args:
            path: where to save the figure, as PNG, PDF or SVG by its suffix; None draws
                without saving.
            quantity: what the values are, with their unit.
            name: of a symbol, as `Tokenizer.name`; its number by default.

        Returns:
            The Matplotlib figure.

        Raises:
            InputError: the suffix names no such format.
            OSError: the file cannot be written.
        """
        from bounds.curves.figures import save_as_named
        from bounds.curves.scan_figure import scan_figure

        figure = scan_figure(self, quantity, name)
        if path is not None:
            save_as_named(figure, path)
        return figure
