"""Figures of a scan: substitutes at positions, rows against positions, or letters."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.figures.primitives import drawable, heat_map
from bounds.figures.symbols import influence_figure, letter_figure
from bounds.influence.scan.result import Scan
from bounds.influence.scan.view import View, largest_label, view_scan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Positions of one row of a heat map.
ACROSS = 128
# Positions of an axis up to which each has its name, and symbols.
NAMED, NAMED_SYMBOLS = 64, 32


def scan_figure(
    scan: Scan,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> "Figure":
    """Figure of the view of a scan; symbols are named by number by default."""
    view, name = view_scan(scan, shape), name or str
    row = int(scan.rows[0]) if scan.rows.size == 1 else None
    if view.shape == "map":
        return _map(scan, view, quantity, name)
    if view.shape == "heat":
        return _heat(scan, view, quantity, name, row)
    label = largest_label(scan, quantity)
    sizes = dict(zip(scan.positions.tolist(), np.abs(view.values), strict=True))
    sizes = {position: y for position, y in sizes.items() if not np.isnan(y)}
    if view.shape == "auto":
        return influence_figure(sizes, label, row)
    names = [name(int(symbol)) for symbol in scan.tokens]
    return letter_figure(sizes, names, label, row)


def _map(scan: Scan, view: View, quantity: str, name: Callable[[int], str]) -> "Figure":
    """Map of watched rows, downwards, against replaced positions."""
    largest = "largest over substitutes: " if "symbol" in scan.axes else ""
    label = largest + quantity
    with heat_map(view.values, view.top, label, 6.2) as (figure, ((axes, _),)):
        _name(axes.xaxis, scan.positions, scan.tokens, name)
        _name(axes.yaxis, view.columns, scan.tokens, name)
        axes.set(xlabel="position that is replaced", ylabel="row that is watched")
    return figure


def _heat(
    scan: Scan, view: View, quantity: str, name: Callable[[int], str], row: int | None
) -> "Figure":
    """Map of substitutes against positions, a dot at the symbol that stands there."""
    symbols, values = view.columns, view.values
    rows = -(-len(values) // ACROSS)
    across = -(-len(values) // rows)
    height = max(min(0.14, 3.0 / symbols.size) * symbols.size + 0.55, 1.2)
    shown = range(0, symbols.size, -(-symbols.size // NAMED_SYMBOLS))
    labels = [drawable(name(int(symbols[i]))) for i in shown]
    size = height * rows + 0.5
    with heat_map(values, view.top, quantity, size, rows) as (figure, panels):
        for axes, these in panels:
            own = scan.tokens[scan.positions[these]]
            known = np.isin(own, symbols)
            places = np.flatnonzero(known), np.searchsorted(symbols, own[known])
            axes.plot(*places, "k.", markersize=min(4.0, 300 / across))
            _name(axes.xaxis, scan.positions[these], scan.tokens, name)
            axes.set_yticks(shown, labels, fontsize=6, parse_math=False)
            axes.tick_params(axis="y", length=0)
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
