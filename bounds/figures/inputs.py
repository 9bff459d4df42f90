"""Figures of one input: its symbols, or heat maps of its scan.

A scan is a table of changes of an output over positions, substitutes and watched rows.
Influences are given by increasing position. The query is the watched position.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.figures import primitives as draw
from bounds.figures.primitives import COLOURS, Symbols, drawable, write
from bounds.influence.table.cells import Cells
from bounds.influence.table.lines import Residues, place_noun
from bounds.influence.table.view import largest_label, view_scan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Decades from the largest influence beyond which smaller ones are drawn near 0.
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
    with draw.curves(quantity, y, places, 3.0, "linear") as (figure, axes):
        axes.locator_params("x", integer=True)
        axes.plot(x, y, "o", color=COLOURS[0], markersize=3)
        if query is not None:
            draw.guide(axes, "query", query, size=8)
    return figure


def sequence_figure(
    influences: Mapping[int, float],
    names: Sequence[str],
    substitutes: Sequence[str],
    quantity: str,
    query: int | None,
) -> "Figure":
    """Figure of an input's symbols with their influences, and a rule at the query."""
    # The symbol at every position, and that of the largest change at each of the influences.
    symbols = [(drawable(name), place) for place, name in enumerate(names)]
    best = dict(zip(influences, map(drawable, substitutes), strict=True))
    letters = all(len(best[p]) <= 1 and len(names[p]) <= 1 for p in influences)
    heights = np.array([*influences.values()], float)
    top = heights.max(initial=0.0) or 1.0
    # Smaller ones lie below the least decade of the axis, which is linear there.
    heights = np.where(heights < top * 10.0**-DECADES, 0.0, heights)
    note = "; on each line the substitute that changes most"
    look = (letters, 1.3 if letters else 1.9, note)
    with draw.symbol_rows(symbols, influences, query, *look) as (figure, rows):
        for axes, row in rows:
            zero = draw.scale_logarithms(axes, heights)
            bottom = heights.min(initial=top) / 2 if zero is None else 0.0
            axes.set_ylim(bottom, top * (2.5 if letters else 8))
            x = [place for place in row if place in influences]
            y = [influences[place] for place in x]
            axes.vlines(x, bottom, y, COLOURS[0], linewidth=0.9)
            axes.plot(x, y, "o", color=COLOURS[0], markersize=2.5)
            for place in x:
                at, turn = (place, influences[place]), 0 if letters else 90
                write(axes, best[place], at, (0, 2.5), rotation=turn)
            draw.label_logarithms(axes)
            if query is not None and query in row:
                draw.guide(axes, "query", query, size=7)
        figure.supylabel(quantity, fontsize=9)
    return figure


def scan_figure(
    scan: Cells,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> "Figure":
    """Figure of a scan as map, heat map, letters or points; `name` names symbols."""
    view, noun = view_scan(scan, shape), place_noun(name)
    row = int(scan.rows[0]) if scan.rows.size == 1 else None
    names = [drawable((name or str)(symbol)) for symbol in scan.tokens.tolist()]
    numbers, place = range(len(names)), str
    if isinstance(name, Residues):
        numbers, place = name.numbers, name.place
    symbols = [*zip(names, numbers, strict=True)]
    shading = ", shaded," if view.shape == "letters" else ""
    watched = "" if row is None else f"; row {place(row)}{shading} is watched"
    if view.shape == "map":
        largest = "largest over substitutes: " if "symbol" in scan.axes else ""
        look = (view.top, largest + quantity, 6.2)
        with draw.heat_map(view.values, *look) as (figure, ((axes, _),)):
            _name(axes.xaxis, [symbols[p] for p in scan.positions])
            _name(axes.yaxis, [symbols[p] for p in view.columns])
            axes.set_xlabel(f"{noun} that is {scan.edit}")
            axes.set_ylabel(f"{place_noun(name, 'row')} that is watched")
        return figure
    if view.shape == "heat":
        new, values = view.columns, view.values
        rows = -(-len(values) // ACROSS)
        size = 0.5 + rows * max(min(0.14, 3.0 / new.size) * new.size + 0.55, 1.2)
        shown = range(0, new.size, -(-new.size // NAMED_SYMBOLS))
        labels = [drawable((name or str)(int(new[i]))) for i in shown]
        with draw.heat_map(values, view.top, quantity, size, rows) as (figure, panels):
            for axes, these in panels:
                # A dot marks each position's own symbol.
                own = scan.tokens[scan.positions[these]]
                known = np.isin(own, new)
                dots = np.flatnonzero(known), np.searchsorted(new, own[known])
                axes.plot(*dots, "k.", markersize=min(4.0, 300 / panels[0][1].stop))
                _name(axes.xaxis, [symbols[p] for p in scan.positions[these]])
                axes.set_yticks(shown, labels, fontsize=6, parse_math=False)
                axes.tick_params(axis="y", length=0)
            figure.supylabel("substitute", fontsize=9)
            marked = f"{noun}; a dot marks the symbol there{watched}"
            figure.supxlabel(marked, fontsize=9)
        return figure
    label = largest_label(scan, quantity)
    sizes = dict(zip(scan.positions.tolist(), np.abs(view.values), strict=True))
    sizes = {position: y for position, y in sizes.items() if not np.isnan(y)}
    if view.shape == "letters":
        return _letters(sizes, symbols, label, row, watched)
    at = {number: sizes[p] for p in sizes if (number := numbers[p]) is not None}
    query = None if row is None else numbers[row]
    return influence_figure(at, label, query, place_noun(name, POSITIONS))


def _letters(
    influences: Mapping[int, float],
    symbols: Symbols,
    quantity: str,
    watched: int | None,
    note: str,
) -> "Figure":
    """Figure of symbols as high as influences; the watched one is shaded, cut at top."""
    others = [height for p, height in influences.items() if p != watched]
    # The watched row's own change is far larger than others, which it would press flat.
    top = ROOM * (max(others, default=0) or max(influences.values(), default=0) or 1)
    lengths = [len(symbols[p][0]) for p in influences or [watched or 0]]
    letters = 2 * lengths.count(1) > len(lengths)
    look = (letters, 1.1 if letters else 1.6, note)
    with draw.symbol_rows(symbols, influences, watched, *look) as (figure, rows):
        for axes, row in rows:
            axes.set_ylim(0, top)
            for place in [p for p in row if influences.get(p, 0) > 0]:
                height = min(influences[place], top)
                _draw_symbol(axes, place, height, symbols[place][0], letters)
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


def _name(axis: Any, symbols: Symbols) -> None:
    """Labels an axis with symbols of the input if there is room, else with numbers."""
    labels, numbers = zip(*symbols, strict=True)
    if len(labels) <= NAMED and max(map(len, labels)) == 1:
        if axis.axis_name == "x":
            tens = (" " if x is None or x % 10 else x for x in numbers)
            labels = [f"{x}\n{ten}" for x, ten in zip(labels, tens, strict=True)]
        axis.set_ticks(range(len(labels)), labels, fontsize=7, parse_math=False)
        axis.set_tick_params(length=0)
        return
    # At most some sixteen numbers fit an axis.
    every = next(x for x in (1, 5, 10, 20, 50, 100, 10**9) if len(labels) <= 16 * x)
    shown = [i for i, x in enumerate(numbers) if x is not None and x % every == 0]
    shown = shown or [0]
    axis.set_ticks(shown, [str(numbers[i]) for i in shown], fontsize=7)
