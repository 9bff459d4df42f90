"""Figures of one input: an influence at each position, by its symbols where they have names.

Influences are given by position, in increasing order; a position that is left out has none.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds.figures.primitives import (
    COLOURS,
    curves,
    draw_zeros,
    drawable,
    floor_below,
    label_logarithms,
    mark_query,
    symbol_rows,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Decades from the largest influence beyond which smaller ones lie on the floor.
DECADES = 6
# Widths of a glyph and of a bar, in positions.
GLYPH, BAR = 0.92, 0.6
# Heights beyond the largest that is not the watched row's own are cut here.
ROOM = 1.12


def influence_figure(
    influences: Mapping[int, float], quantity: str, query: int | None
) -> "Figure":
    """Figure of the largest influence at each position; the query is marked, if any."""
    x, y = np.array([*influences], int), np.array([*influences.values()], float)
    floor = floor_below(y)
    shape = ("position (counted from 0)", 3.0, ("linear", "log"), floor)
    look = {"color": COLOURS[0], "marker": "o", "markersize": 3, "linestyle": "none"}
    with curves(quantity, *shape) as (figure, axes):
        axes.plot(x[y > 0], y[y > 0], **look)
        if floor is not None:
            draw_zeros(axes, x[y <= 0], floor, **look)
        if query is not None:
            mark_query(axes, query, size=8)
    return figure


def sequence_figure(
    influences: Mapping[int, float],
    names: Sequence[str],
    substitutes: Sequence[str],
    quantity: str,
    query: int | None,
) -> "Figure":
    """Figure of the largest influence by symbols, the query marked, if any.

    Names are of the symbol at every position [n], substitutes of the symbol that makes the
    largest change at each of the influences.
    """
    names, substitutes = [*map(drawable, names)], [*map(drawable, substitutes)]
    best = dict(zip(influences, substitutes, strict=True))
    letters = all(len(x) <= 1 for x in [*substitutes, *(names[p] for p in influences)])
    top = max(influences.values(), default=0) or 1.0
    least = min((y for y in influences.values() if y > 0), default=top)
    floor = max(least, top * 10.0**-DECADES)
    note = "; on each line the substitute that changes most"
    shape = (letters, 1.3 if letters else 1.9, note)
    with symbol_rows(names, influences, query, *shape) as (figure, rows):
        for axes, row in rows:
            axes.set_yscale("log")
            axes.set_ylim(floor / 2, top * (2.5 if letters else 8))
            for place in [p for p in row if p in influences]:
                height, seen = max(influences[place], floor), influences[place] >= floor
                look = {"color": COLOURS[0], "markersize": 2.5}
                look["markerfacecolor"] = COLOURS[0] if seen else "white"
                axes.plot([place], [height], "o", **look)
                if seen:
                    axes.vlines(place, floor / 2, height, COLOURS[0], linewidth=0.9)
                turned = {"rotation": 0 if letters else 90}
                write(axes, best[place], (place, height), (0, 2.5), **turned)
            label_logarithms(axes)
            if query is not None and query in row:
                mark_query(axes, query, size=7)
        figure.supylabel(quantity, fontsize=9)
    return figure


def letter_figure(
    influences: Mapping[int, float],
    names: Sequence[str],
    quantity: str,
    watched: int | None,
) -> "Figure":
    """Figure of symbols as high as influences; the watched row, shaded, is cut if higher."""
    names = [*map(drawable, names)]
    others = [height for p, height in influences.items() if p != watched]
    top = ROOM * (max(others, default=0) or max(influences.values(), default=0) or 1)
    shown = [*influences] or [watched or 0]
    letters = 2 * sum(len(names[p]) == 1 for p in shown) > len(shown)
    note = "" if watched is None else f"; row {watched}, shaded, is watched"
    shape = (letters, 1.1 if letters else 1.6, note)
    with symbol_rows(names, shown, watched, *shape) as (figure, rows):
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
    """Draws one symbol from 0 up to a height: its glyph's stretched outline, or a bar."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    # A stop or a dash, stretched, would be a block: a bar is as good, its name below.
    if not letters or len(name) > 1 or not name.isalnum():
        axes.bar(position, height, BAR, color=COLOURS[0], alpha=0.75, linewidth=0)
        if letters and len(name) > 1:
            write(axes, name, (position, 0), (0, 2), rotation=90)
        return
    font = FontProperties(family="DejaVu Sans Mono", weight="bold")
    glyph = TextPath((0, 0), name, size=1, prop=font, usetex=False)
    box = glyph.get_extents()
    stretch = Affine2D().translate(-(box.x0 + box.width / 2), -box.y0)
    stretch = stretch.scale(GLYPH / box.width, height / box.height)
    outline = stretch.translate(position, 0).transform_path(glyph)
    axes.add_patch(PathPatch(outline, color=COLOURS[0], linewidth=0))
