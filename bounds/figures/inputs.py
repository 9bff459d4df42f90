"""Figures of one input: its symbols, or heat maps of its scan.

Influences are given by position, in increasing order, without positions that have none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from bounds.figures.primitives import (
    COLOURS,
    curves,
    draw_rule,
    drawable,
    floor_below,
    heat_map,
    label_logarithms,
    symbol_rows,
    write,
)
from bounds.influence.table.lines import Residues, place_noun
from bounds.influence.table.result import Scan
from bounds.influence.table.view import View, largest_label, view_scan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Decades from the largest influence beyond which smaller ones lie on the floor.
DECADES = 6
# Widths of a glyph and of a bar, in positions.
GLYPH, BAR = 0.92, 0.6
# Heights are cut at this multiple of the largest that is not the watched row's own.
ROOM = 1.12
# Positions of one row of a heat map; those up to which each has its name, and symbols.
ACROSS, NAMED, NAMED_SYMBOLS = 128, 64, 32
POSITIONS = "position (counted from 0)"


def influence_figure(
    influences: Mapping[int, float],
    quantity: str,
    query: int | None,
    places: str = POSITIONS,
) -> "Figure":
    """Figure of the largest influence at each position, with a rule at the query."""
    x, y = np.array([*influences], int), np.array([*influences.values()], float)
    floor = floor_below(y)
    shape = (places, 3.0, ("linear", "log"), floor)
    look = {"color": COLOURS[0], "marker": "o", "markersize": 3, "linestyle": "none"}
    with curves(quantity, *shape) as (figure, axes):
        axes.locator_params("x", integer=True)
        axes.plot(x[y > 0], y[y > 0], **look)
        if floor is not None:
            axes.plot(x[y <= 0], floor + 0 * y[y <= 0], markerfacecolor="white", **look)
        if query is not None:
            draw_rule(axes, "query", query, size=8)
    return figure


def sequence_figure(
    influences: Mapping[int, float],
    names: Sequence[str],
    substitutes: Sequence[str],
    quantity: str,
    query: int | None,
) -> "Figure":
    """Figure of the influence at each symbol of an input, with a rule at the query."""
    # The symbol at every position, and that of the largest change at each of the influences.
    names, substitutes = [*map(drawable, names)], [*map(drawable, substitutes)]
    best = dict(zip(influences, substitutes, strict=True))
    letters = all(len(x) <= 1 for x in [*substitutes, *(names[p] for p in influences)])
    top = max(influences.values(), default=0) or 1.0
    least = min((y for y in influences.values() if y > 0), default=top)
    floor = max(least, top * 10.0**-DECADES)
    note = "; on each line the substitute that changes most"
    size, turn = (1.3, 0) if letters else (1.9, 90)
    shown, numbers = [*influences], range(len(names))
    if query is not None:
        shown.append(query)
    with symbol_rows(names, shown, numbers, letters, size, note) as (figure, rows):
        for axes, row in rows:
            axes.set_yscale("log")
            axes.set_ylim(floor / 2, top * (2.5 if letters else 8))
            for place in [p for p in row if p in influences]:
                # Smaller influences are open marks on the floor.
                height, seen = max(influences[place], floor), influences[place] >= floor
                look = {"color": COLOURS[0], "markersize": 2.5}
                look["markerfacecolor"] = COLOURS[0] if seen else "white"
                axes.plot([place], [height], "o", **look)
                if seen:
                    axes.vlines(place, floor / 2, height, COLOURS[0], linewidth=0.9)
                write(axes, best[place], (place, height), (0, 2.5), rotation=turn)
            label_logarithms(axes)
            if query is not None and query in row:
                draw_rule(axes, "query", query, size=7)
        figure.supylabel(quantity, fontsize=9)
    return figure


def letter_figure(
    influences: Mapping[int, float],
    tokens: Int[np.ndarray, "tokens"],
    name: Callable[[int], str],
    quantity: str,
    watched: int | None,
) -> "Figure":
    """Figure of symbols as high as influences; the watched row, shaded, is cut if higher."""
    names = [drawable(name(int(symbol))) for symbol in tokens]
    others = [height for p, height in influences.items() if p != watched]
    # The watched row's own change is far larger than others, which it would press flat.
    top = ROOM * (max(others, default=0) or max(influences.values(), default=0) or 1)
    shown = [*influences] or [watched or 0]
    letters = 2 * sum(len(names[p]) == 1 for p in shown) > len(shown)
    note, size, numbers = "", 1.1 if letters else 1.6, _numbers(name, tokens)
    if watched is not None:
        note = f"; row {_place(name, watched)}, shaded, is watched"
        shown.append(watched)
    with symbol_rows(names, shown, numbers, letters, size, note) as (figure, rows):
        for axes, row in rows:
            axes.set_ylim(0, top)
            for place in [p for p in row if influences.get(p, 0) > 0]:
                height = min(influences[place], top)
                _draw_symbol(axes, place, height, names[place], letters)
                if influences[place] > top:
                    write(axes, f"{influences[place]:.3g}", (place, top))
            if watched is not None and watched in row:
                axes.axvspan(watched - 0.5, watched + 0.5, color="0.88", zorder=0)
        figure.supylabel(quantity, fontsize=9)
    return figure


def _draw_symbol(
    axes: "Axes", position: int, height: float, name: str, letters: bool
) -> None:
    """Draws a symbol of the given height: its glyph's stretched outline, or a bar."""
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Bbox, BboxTransform

    # A stop or a dash, stretched, would be a block: a bar is as good, its name below.
    if not letters or len(name) > 1 or not name.isalnum():
        axes.bar(position, height, BAR, color=COLOURS[0], alpha=0.75, linewidth=0)
        if letters and len(name) > 1:
            write(axes, name, (position, 0), (0, 2), rotation=90)
        return
    font: Any = {"family": "DejaVu Sans Mono", "weight": "bold"}
    glyph = TextPath((0, 0), name, size=1, prop=font, usetex=False)
    room = Bbox.from_bounds(position - GLYPH / 2, 0, GLYPH, height)
    # From the extents of the letter itself, so that all letters fill their room.
    outline = BboxTransform(glyph.get_extents(), room).transform_path(glyph)
    axes.add_patch(PathPatch(outline, color=COLOURS[0], linewidth=0))


def scan_figure(
    scan: Scan,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> "Figure":
    """Figure of a scan as map, heat map, letters or points; `name` names symbols."""
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
        numbers = _numbers(name, scan.tokens)
        at = {number: sizes[p] for p in sizes if (number := numbers[p]) is not None}
        query = None if row is None else numbers[row]
        return influence_figure(at, label, query, place_noun(name, POSITIONS))
    return letter_figure(sizes, scan.tokens, name, label, row)


def _map(scan: Scan, view: View, quantity: str, name: Callable[[int], str]) -> "Figure":
    """Map of watched rows (down) against replaced positions (across)."""
    largest = "largest over substitutes: " if "symbol" in scan.axes else ""
    label = largest + quantity
    with heat_map(view.values, view.top, label, 6.2) as (figure, ((axes, _),)):
        _name(axes.xaxis, scan.positions, scan.tokens, name)
        _name(axes.yaxis, view.columns, scan.tokens, name)
        edited = f"{place_noun(name)} that is {scan.edit}"
        watched = f"{place_noun(name, 'row')} that is watched"
        axes.set(xlabel=edited, ylabel=watched)
    return figure


def _heat(
    scan: Scan, view: View, quantity: str, name: Callable[[int], str], row: int | None
) -> "Figure":
    """Map of substitutes against positions, with a dot at each position's own symbol."""
    symbols, values = view.columns, view.values
    rows = -(-len(values) // ACROSS)
    across = -(-len(values) // rows)
    size = 0.5 + rows * max(min(0.14, 3.0 / symbols.size) * symbols.size + 0.55, 1.2)
    shown = range(0, symbols.size, -(-symbols.size // NAMED_SYMBOLS))
    labels = [drawable(name(int(symbols[i]))) for i in shown]
    with heat_map(values, view.top, quantity, size, rows) as (figure, panels):
        for axes, these in panels:
            own = scan.tokens[scan.positions[these]]
            known = np.isin(own, symbols)
            places = np.flatnonzero(known), np.searchsorted(symbols, own[known])
            axes.plot(*places, "k.", markersize=min(4.0, 300 / across))
            _name(axes.xaxis, scan.positions[these], scan.tokens, name)
            axes.set_yticks(shown, labels, fontsize=6, parse_math=False)
            axes.tick_params(axis="y", length=0)
        watched = "" if row is None else f"; row {_place(name, row)} is watched"
        figure.supylabel("substitute", fontsize=9)
        label = f"{place_noun(name)}; a dot marks the symbol there{watched}"
        figure.supxlabel(label, fontsize=9)
    return figure


def _numbers(
    name: Callable[[int], str], tokens: Int[np.ndarray, "tokens"]
) -> Sequence[int | None]:
    """Number of the residue at each position, None at special symbols; else positions."""
    return name.numbers if isinstance(name, Residues) else range(len(tokens))


def _place(name: Callable[[int], str], position: int) -> str:
    """Residue at a position, as A25, where residues are numbered; else the position."""
    return name.place(position) if isinstance(name, Residues) else str(position)


def _name(
    axis: Any,
    places: Int[np.ndarray, "places"],
    tokens: Int[np.ndarray, "tokens"],
    name: Callable[[int], str],
) -> None:
    """Labels an axis with the symbols at `places` where there is room, else with numbers."""
    labels = [drawable(name(int(tokens[place]))) for place in places]
    numbers = [_numbers(name, tokens)[place] for place in places]
    if len(places) <= NAMED and max(map(len, labels)) == 1:
        if axis.axis_name == "x":
            tens = (" " if x is None or x % 10 else x for x in numbers)
            labels = [f"{x}\n{ten}" for x, ten in zip(labels, tens, strict=True)]
        axis.set_ticks(range(len(places)), labels, fontsize=7, parse_math=False)
        axis.set_tick_params(length=0)
        return
    # At most some sixteen numbers fit an axis.
    every = next(x for x in (1, 5, 10, 20, 50, 100, 10**9) if len(places) <= 16 * x)
    shown = [i for i, x in enumerate(numbers) if x is not None and x % every == 0]
    shown = shown or [0]
    axis.set_ticks(shown, [str(numbers[i]) for i in shown], fontsize=7)
