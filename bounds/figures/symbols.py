"""Symbols of an input with their influences: lines up to them, or letters as high."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds.figures.curve import Series
from bounds.figures.primitives import (
    COLOURS,
    drawable,
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


def sequence_figure(
    series: Series,
    names: Sequence[str],
    substitutes: Sequence[str],
    quantity: str,
    query: int | None,
) -> "Figure":
    """Figure of the largest influence at increasing positions, the query marked, if any.

    Names are of the symbol at every position [n], substitutes of the symbol that makes the
    largest change at each of the series.
    """
    names, substitutes = [*map(drawable, names)], [*map(drawable, substitutes)]
    shown = [names[position] for position in series.x]
    letters = max(map(len, [*shown, *substitutes]), default=1) == 1
    top = float(series.y.max(initial=0)) or 1.0
    floor = max(float(series.y[series.y > 0].min(initial=top)), top * 10.0**-DECADES)

    def draw(axes: "Axes", row: range) -> None:
        """A line up to each value, and the substitute's name on it."""
        axes.set_yscale("log")
        axes.set_ylim(floor / 2, top * (2.5 if letters else 8))
        for at in np.flatnonzero((series.x >= row.start) & (series.x < row.stop)):
            place, seen = series.x[at], series.y[at] >= floor
            height, fill = max(series.y[at], floor), COLOURS[0] if seen else "white"
            look = {"color": COLOURS[0], "markersize": 2.5, "markerfacecolor": fill}
            axes.plot([place], [height], "o", **look)
            if seen:
                axes.vlines(place, floor / 2, height, color=COLOURS[0], linewidth=0.9)
            rotation = 0 if letters else 90
            write(axes, substitutes[at], (place, height), (0, 2.5), rotation=rotation)
        label_logarithms(axes)
        if query is not None and query in row:
            mark_query(axes, query, size=7)

    note = "; on each line the substitute that changes most"
    height = 1.3 if letters else 1.9
    places = series.x.tolist()
    return symbol_rows(names, places, query, letters, height, draw, quantity, note)


def letter_figure(
    series: Series, names: Sequence[str], quantity: str, row: int | None
) -> "Figure":
    """Figure of symbols as high as the series; the watched row, shaded, is cut if higher."""
    names = [*map(drawable, names)]
    height_at = dict(zip(series.x.tolist(), series.y, strict=True))
    others = [height for p, height in height_at.items() if p != row]
    top = ROOM * (max(others, default=0.0) or max(height_at.values(), default=1) or 1)
    shown = [*height_at] or ([0] if row is None else [row])
    letters = 2 * sum(len(names[p]) == 1 for p in shown) > len(shown)

    def draw(axes: "Axes", positions: range) -> None:
        axes.set_ylim(0, top)
        for position in positions:
            height = float(height_at.get(position, 0.0))
            if height > 0:
                _draw_symbol(axes, position, min(height, top), names[position], letters)
            if height > top:
                write(axes, f"{height:.3g}", (position, top))
        if row is not None and row in positions:
            axes.axvspan(row - 0.5, row + 0.5, color="0.88", zorder=0)

    note = "" if row is None else f"; row {row}, shaded, is watched"
    row_height = 1.1 if letters else 1.6
    return symbol_rows(names, shown, row, letters, row_height, draw, quantity, note)


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
