"""Views of a scan: the part of its table that a figure or a page shows.

A scan is a table of changes of an output by edits of an input at each position; a cell
is one of its numbers, and a radius bounds its rounding. The shape of a figure is a map
of watched rows against positions, a heat map of substitutes at positions, or letters.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped

from bounds.influence.table.cells import Cells
from jax_models.arguments import choose_name
from jax_models.errors import InputError

# Symbols beyond which a map of them cannot be read.
MOST_SYMBOLS = 64
# Shapes of figures, and the axes that each shows.
SHAPES: dict[str, tuple[str, ...]] = {
    "auto": ("position",),
    "map": ("position", "row"),
    "heat": ("position", "symbol"),
    "letters": ("position",),
}


@dataclasses.dataclass(frozen=True)
class View:
    """Values on a figure's axes; of those along other axes, the largest absolute one."""

    # Stays "auto" for scans without rows whose symbols are too many or no axis.
    shape: str
    values: Float[np.ndarray, "positions *columns"]
    radii: Float[np.ndarray, "positions *columns"]
    # Symbol that is put in, -1 where none is; None where symbols are an axis, or not known.
    substitutes: Int[np.ndarray, "positions *columns"] | None
    columns: Int[np.ndarray, "columns"]  # rows or symbols, increasing
    # End of the scale: the largest size but those of a row's own position, which are far
    # larger.
    top: float


def view_scan(scan: Cells, shape: str = "auto") -> View:
    """View of a scan; "auto" is a map if it has rows, a heat map if it has few symbols."""
    check_shape(shape, scan.axes)
    if shape == "auto" and "row" in scan.axes:
        shape = "map"
    elif shape == "auto" and "symbol" in scan.axes:
        shape = "heat" if scan.symbols.shape[-1] <= MOST_SYMBOLS else shape
    values, radii, substitutes = _largest(scan, SHAPES[shape])
    rows = scan.rows if shape == "map" or scan.rows.size == 1 else np.array([-1])
    columns = scan.rows
    if shape == "heat":
        columns, values, radii = _spread(scan, values, radii)
    own = scan.positions[:, None] == rows
    there = ~np.isnan(values)
    scale = values[there & ~(own[:, 0] if values.ndim == 1 else own)]
    # Where all others are 0 the scale is that of the row's own; where these are too, 1.
    scale = scale if scale.size and scale.any() else values[there]
    top = float(np.abs(scale).max(initial=0)) or 1.0
    return View(shape, values, radii, substitutes, columns, top)


def check_shape(shape: str, axes: Sequence[str]) -> None:
    """Raises `InputError` if `axes` lack an axis that the shape of a figure needs."""
    choose_name("figure", shape, tuple(SHAPES))
    for needed in SHAPES[shape]:
        if needed not in axes:
            raise InputError(
                f"figure = {shape!r} needs an axis of {needed}s, and the scan has "
                f"{', '.join(axes)}; ask for another figure, or scan with {needed}s kept"
            )


def largest_label(scan: Cells, quantity: str) -> str:
    """Axis label: `quantity`, as largest absolute value where the figure shows that."""
    chosen = len(scan.axes) > 1 or bool((scan.values < 0).any())
    named = not chosen or quantity.startswith("largest")
    return quantity if named else f"largest absolute value: {quantity}"


def _largest(
    scan: Cells, axes: tuple[str, ...]
) -> tuple[
    Float[np.ndarray, "..."], Float[np.ndarray, "..."], Int[np.ndarray, "..."] | None
]:
    """Values along `axes`, largest over the others; their radii and substitutes."""
    values = scan.values
    radii = np.maximum(scan.upper - values, values - scan.lower)
    others = [i for i, axis in enumerate(scan.axes) if axis not in axes]
    if not others:
        return values, radii, None
    last = tuple(range(-len(others), 0))
    values, radii = (np.moveaxis(x, others, last) for x in (values, radii))
    kept = values.shape[: -len(others)]
    values, radii = (x.reshape(*kept, -1) for x in (values, radii))
    # Below every size, so that NaN is taken only where there is nothing else.
    at = np.where(np.isnan(values), -1, np.abs(values)).argmax(-1)
    taken = (np.take_along_axis(x, at[..., None], -1)[..., 0] for x in (values, radii))
    values, radii = np.abs(next(taken)), next(taken)
    if "symbol" in axes or "symbol" not in scan.axes:
        return values, radii, None
    # The largest cell's index among the symbols says what is put in there.
    where = [scan.axes[i] for i in others].index("symbol")
    column = np.unravel_index(at, [scan.values.shape[i] for i in others])[where]
    size = len(scan.positions), scan.symbols.shape[-1]
    row = np.arange(size[0]).reshape(-1, *[1] * (column.ndim - 1))
    return values, radii, np.broadcast_to(scan.symbols, size)[row, column]


def _spread(
    scan: Cells, *tables: Float[np.ndarray, "positions symbols"]
) -> tuple[Shaped[np.ndarray, "..."], ...]:
    """All symbols of the scan, increasing, and `tables` with a column for each."""
    symbols = np.unique(scan.symbols)
    symbols = symbols[symbols >= 0]
    own = np.broadcast_to(scan.symbols, tables[0].shape)
    at, to = np.nonzero(~np.isnan(tables[0]))
    filled = [np.full((len(scan.positions), symbols.size), np.nan) for _ in tables]
    for table, new in zip(tables, filled, strict=True):
        new[at, np.searchsorted(symbols, own[at, to])] = table[at, to]
    return symbols, *filled
