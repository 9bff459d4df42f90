"""Figures of a scan: substitutes at positions, rows against positions, or letters.

A position x substitute heat map marks the symbol that stands there; a position x row map
shows the largest over substitutes; letters are as high as the largest change. A scale
ends at the largest value off the diagonal, since a row's own position outshines all others.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.figures.curve import Series, influence_figure
from bounds.figures.primitives import drawable, heat_map
from bounds.figures.symbols import letter_figure
from bounds.influence.scan.result import Scan
from jax_models.arguments import choose_name
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Positions of one row of a heat map, and symbols beyond which names cannot be read.
ACROSS, MOST_SYMBOLS = 128, 64
# Positions of an axis up to which each has its name, and symbols.
NAMED, NAMED_SYMBOLS = 64, 32
# Shapes of figures, and the axis that each needs.
SHAPES = {"auto": None, "map": "row", "heat": "symbol", "letters": None}


def check_shape(shape: str, axes: Sequence[str]) -> None:
    """Refuses a shape of figure that a scan of these axes lacks the axis for."""
    choose_name("figure", shape, tuple(SHAPES))
    if (needed := SHAPES[shape]) is not None and needed not in axes:
        raise InputError(
            f"figure = {shape!r} needs an axis of {needed}s, and the scan has "
            f"{', '.join(axes)}; ask for another figure, or scan with {needed}s kept"
        )


def scan_figure(
    scan: Scan,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> "Figure":
    """Figure of a scan: a map where many rows are watched, else a heat map of substitutes.

    Further axes are reduced to the largest absolute value; of more than 64 symbols the
    largest change at every position is drawn. Symbols are named by number by default.
    """
    check_shape(shape, scan.axes)
    name = name or str
    row = int(scan.rows[0]) if scan.rows.size == 1 else None
    if shape == "map" or (shape == "auto" and "row" in scan.axes):
        return _map(scan, quantity, name)
    few = "symbol" in scan.axes and scan.symbols.shape[-1] <= MOST_SYMBOLS
    if shape == "heat" or (shape == "auto" and few):
        return _heat(scan, quantity, name, row)
    values, largest = _reduce(scan, ("position",)), largest_label(scan, quantity)
    there = ~np.isnan(values)
    series = Series("", scan.positions[there], np.abs(values[there]))
    if shape == "auto":
        return influence_figure(series, largest, row)
    names = [name(int(symbol)) for symbol in scan.tokens]
    return letter_figure(series, names, largest, row)


def largest_label(scan: Scan, quantity: str) -> str:
    """Label of the largest absolute value at each position."""
    chosen = len(scan.axes) > 1 or bool((scan.values < 0).any())
    said = not chosen or quantity.startswith("largest")
    return quantity if said else f"largest absolute value: {quantity}"


def _reduce(scan: Scan, axes: tuple[str, ...]) -> np.ndarray:
    """The values over these axes; over others the largest absolute value."""
    others = tuple(i for i, axis in enumerate(scan.axes) if axis not in axes)
    if not others:
        return scan.values
    there = ~np.isnan(scan.values)
    largest = np.where(there, np.abs(scan.values), -1).max(axis=others)
    return np.where(there.any(axis=others), largest, np.nan)


def top_of(values: np.ndarray, apart: np.ndarray) -> float:
    """End of a scale: the largest absolute value not `apart`, or of all; 1 where 0."""
    scale = values[~np.isnan(values) & ~apart]
    scale = scale if scale.size and scale.any() else values[~np.isnan(values)]
    return float(np.abs(scale).max(initial=0)) or 1.0


def spread(scan: Scan, *tables: np.ndarray) -> tuple[np.ndarray, ...]:
    """Symbols put in anywhere, increasing, and tables [P, K] with a column for each."""
    symbols = np.unique(scan.symbols)
    symbols = symbols[symbols >= 0]
    own = np.broadcast_to(scan.symbols, tables[0].shape)
    at, to = np.nonzero(~np.isnan(tables[0]))
    filled = [np.full((len(scan.positions), symbols.size), np.nan) for _ in tables]
    for table, new in zip(tables, filled, strict=True):
        new[at, np.searchsorted(symbols, own[at, to])] = table[at, to]
    return symbols, *filled


def _map(scan: Scan, quantity: str, name: Callable[[int], str]) -> "Figure":
    """Map of watched rows, downwards, against replaced positions."""
    values = _reduce(scan, ("position", "row"))
    top = top_of(values, scan.positions[:, None] == scan.rows)

    def decorate(axes: "Axes", these: slice) -> None:
        _name(axes.xaxis, scan.positions[these], scan.tokens, name)
        _name(axes.yaxis, scan.rows, scan.tokens, name)
        axes.set_xlabel("position that is replaced")
        axes.set_ylabel("row that is watched")

    largest = "largest over substitutes: " if "symbol" in scan.axes else ""
    return heat_map(values, top, f"{largest}{quantity}", 6.2, 1, decorate)


def _heat(
    scan: Scan, quantity: str, name: Callable[[int], str], row: int | None
) -> "Figure":
    """Map of substitutes against positions, a dot at the symbol that stands there."""
    symbols, values = spread(scan, _reduce(scan, ("position", "symbol")))
    top = top_of(values, scan.positions[:, None] == (-1 if row is None else row))
    rows = -(-len(values) // ACROSS)
    height = max(min(0.14, 3.0 / symbols.size) * symbols.size + 0.55, 1.2)
    shown = range(0, symbols.size, -(-symbols.size // NAMED_SYMBOLS))
    labels = [drawable(name(int(symbols[i]))) for i in shown]

    def decorate(axes: "Axes", these: slice) -> None:
        own = scan.tokens[scan.positions[these]]
        known = np.isin(own, symbols)
        places = np.flatnonzero(known), np.searchsorted(symbols, own[known])
        axes.plot(*places, "k.", markersize=min(4.0, 300 / -(-len(values) // rows)))
        _name(axes.xaxis, scan.positions[these], scan.tokens, name)
        axes.set_yticks(shown, labels, fontsize=6, parse_math=False)
        axes.tick_params(axis="y", length=0)

    figure = heat_map(values, top, quantity, height * rows + 0.5, rows, decorate)
    watched = "" if row is None else f"; row {row} is watched"
    figure.supylabel("substitute", fontsize=9)
    figure.supxlabel(f"position; a dot marks the symbol there{watched}", fontsize=9)
    return figure


def _name(
    axis: Any, places: np.ndarray, tokens: np.ndarray, name: Callable[[int], str]
) -> None:
    """Writes the symbols along an axis where there is room, else some positions."""
    labels = [drawable(name(int(tokens[place]))) for place in places]
    if len(places) <= NAMED and max(map(len, labels)) == 1:
        if axis.axis_name == "x":
            tens = (place if place % 10 == 0 else " " for place in places)
            labels = [f"{x}\n{ten}" for x, ten in zip(labels, tens, strict=True)]
        axis.set_ticks(range(len(places)), labels, fontsize=7, parse_math=False)
        axis.set_tick_params(length=0)
        return
    every = next(x for x in (1, 5, 10, 20, 50, 100, 10**9) if len(places) <= 16 * x)
    shown = [i for i, place in enumerate(places) if place % every == 0] or [0]
    axis.set_ticks(shown, [str(places[i]) for i in shown], fontsize=7)
