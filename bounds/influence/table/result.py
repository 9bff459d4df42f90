"""The result of a scan, a table of changes of an output by edits of an input."""

import dataclasses
import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bounds.influence.result import said_of
from bounds.influence.table.cells import Cells
from bounds.influence.table.lines import Named, write_lines
from bounds.store.output import write_bytes
from jax_models import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Scan(Cells):
    """Result of `scan`: changes by every substitution, or a reduction of them.

    `values` have the axes that `axes` names, of "position", "symbol", "row" and "target"
    (of a caller's function only "position" is named). They are NaN where nothing is
    substituted. `lower` and `upper` enclose them where `enclosed`; elsewhere all three are
    one, an estimate. `kind` is that of the largest absolute value. A cell that no
    substitution can move, such as a row before the position under a causal mask, is exactly
    0 and so are its ends.
    """

    def __repr__(self) -> str:
        """One line: the shape, the largest value and the method."""
        # A caller's function may have made axes without names.
        shape = " x ".join(
            f"{size} {name}"
            for size, name in zip(self.values.shape, self.axes, strict=False)
        )
        there = ~np.isnan(self.values)
        largest = f"{np.abs(self.values[there]).max():.6g}" if there.any() else "none"
        return (
            f"Scan({shape}, largest={largest} [{self.kind}], method={self.method!r}, "
            f"substitutions={self.substitutions}{said_of(self.measured_error)})"
        )

    def to_csv(
        self,
        path: str | os.PathLike[str],
        name: Callable[[int], str] | None = None,
        *,
        named_target: bool = False,
    ) -> None:
        """Writes a line for each cell with a value, by position and symbol.

        Args:
            path: the file, with the columns position, symbol (empty where a cell is of
                all), row, target (where there is such an axis), value, lower, upper, kind and
                base (where there is one).
            name: names a symbol, as `Tokenizer.name`; adds wild_type and symbol_name, and
                of `bounds.recipes.Residues` mutation (A25G), or residue (A25) where a
                cell is of all symbols, and row_residue.
            named_target: True names the target's symbols too, for logits of the vocabulary
                and not of classes; adds target_name.

        Raises:
            InputError: a function's values have axes without names.
            OSError: the file cannot be written.
        """
        self.require_named()
        write_lines(path, [Named(self, name, named_target=named_target)])

    def require_named(self) -> None:
        """Raises `InputError` if axes of `values` (of a function) have no names."""
        if self.values.ndim != len(self.axes):
            raise InputError(
                f"values have {self.values.ndim} axes, of which only {self.axes} have names, "
                "as a function made them: a table or a figure cannot say which is which; "
                "use to_npz, or values"
            )

    def to_npz(self, path: str | os.PathLike[str]) -> None:
        """Writes the arrays with their axes as a NumPy archive.

        Args:
            path: the file, with values, lower, upper, enclosed, kind (one word, for the
                largest), axes, positions, symbols, rows, tokens, and target_symbols and
                base where there are some.

        Raises:
            OSError: the file cannot be written.
        """
        names = ("values", "lower", "upper", "enclosed")
        names += ("positions", "symbols", "rows", "tokens")
        arrays = {name: getattr(self, name) for name in names}
        for name in ("target_symbols", "base"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        content = io.BytesIO()
        words = {"axes": np.array(self.axes), "kind": np.array(self.kind)}
        np.savez(content, **words, **arrays)
        write_bytes(path, content.getvalue())

    def to_html(
        self,
        path: str | os.PathLike[str],
        quantity: str = "change",
        name: Callable[[int], str] | None = None,
        *,
        figure: str = "auto",
    ) -> None:
        """Writes the figure of `plot` as an interactive page.

        Args:
            path: the file; reading it needs no network, writing it the package plotly.
            quantity: label of the values, with their unit.
            name: names a symbol, as `Tokenizer.name`; its number by default.
            figure: one of those of `plot`; letters become bars.

        Raises:
            InputError: plotly is not installed, the scan lacks the axis that the figure
                needs, or some axes have no names.
            OSError: the file cannot be written.
        """
        self.require_named()
        from bounds.curves.scan_page import scan_page

        write_bytes(path, scan_page(self, quantity, name, figure))

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        quantity: str = "change",
        name: Callable[[int], str] | None = None,
        *,
        figure: str = "auto",
    ) -> "Figure":
        """Draws rows against positions, substitutes at positions, or letters.

        Args:
            path: where to save the figure, as PNG, PDF or SVG by its suffix; None draws
                without saving.
            quantity: label of the values, with their unit.
            name: names a symbol, as `Tokenizer.name`; its number by default.
            figure: "map" (rows against positions), "heat" (substitutes at positions),
                "letters" (the input, each symbol as high as the largest absolute value
                at its position), or "auto": a map where there is an axis of rows.

        Returns:
            The Matplotlib figure.

        Raises:
            InputError: the suffix names no such format, the scan lacks the axis that
                the figure needs, or some axes have no names.
            OSError: the file cannot be written.
        """
        from bounds.figures.primitives import save_as_named

        self.require_named()
        from bounds.figures.inputs import scan_figure

        drawn = scan_figure(self, quantity, name, figure)
        if path is not None:
            save_as_named(drawn, path)
        return drawn
