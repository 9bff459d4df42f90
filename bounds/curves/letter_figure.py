"""A sequence drawn with letters as high as what changing them changes, in rows.

A glyph's outline is stretched to its value. Names of several letters (WordPiece) cannot be:
they stand at bars. Under each row symbols are written once more, so that low ones are read.
"""

from typing import TYPE_CHECKING

import numpy as np

from bounds.curves.figures import LOOKS, STYLE
from bounds.curves.sequence_figure import (
    LETTERS,
    WIDTH,
    WORDS,
    drawable,
    name_positions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of a glyph or bar, in positions.
GLYPH, BAR = 0.92, 0.6
# Heights beyond the largest that is not the watched row's own are cut here.
ROOM = 1.12


def letter_figure(
    positions: np.ndarray,
    heights: np.ndarray,
    names: list[str],
    quantity: str,
    row: int | None,
) -> "Figure":
    """Draw the symbols of an input as high as the largest change at their positions.

    The watched row's own position does not set the scale, since it outshines all others:
    what is higher than the scale is cut, with its value above.

    Args:
        positions: Those that are changed [P], in any order.
        heights: Non-negative values there [P], NaN where nothing is replaced.
        names: Of the symbol at every position of the input [n].
        quantity: What the values are, with their unit.
        row: The row that is watched, shaded; None where it is none or many.

    Returns:
        The figure, a page wide.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = [*map(drawable, names)]
    there = ~np.isnan(heights)
    height_at = dict(zip(positions[there].tolist(), heights[there], strict=True))
    ends = [*height_at, *([] if row is None else [row])] or [0]
    first, last = min(ends), max(ends)
    shown = [*(height_at or ends)]
    letters = 2 * sum(len(names[p]) == 1 for p in shown) > len(shown)
    across = min(LETTERS if letters else WORDS, last - first + 1)
    others = [height for p, height in height_at.items() if p != row]
    top = ROOM * (max(others, default=0.0) or max(height_at.values(), default=1) or 1)
    starts = range(first, last + 1, across)
    with rc_context(STYLE):
        size = (1.1 if letters else 1.6) * max(len(starts), 2) + 0.6
        figure = Figure(figsize=(WIDTH, size), layout="constrained")
        panels = figure.subplots(len(starts), squeeze=False)[:, 0]
        for start, axes in zip(starts, panels, strict=True):
            axes.set_xlim(start - 0.7, start + across - 0.3)
            axes.set_ylim(0, top)
            shown = range(start, min(start + across, last + 1))
            for position in shown:
                height = float(height_at.get(position, 0.0))
                if height > 0:
                    _draw(axes, position, min(height, top), names[position], letters)
                if height > top:
                    axes.annotate(
                        f"{height:.3g}",
                        (position, top),
                        ha="center",
                        va="bottom",
                        fontsize=6,
                    )
            if row is not None and row in shown:
                axes.axvspan(row - 0.5, row + 0.5, color="0.88", zorder=0)
            name_positions(axes, shown, names, letters)
        figure.supylabel(quantity, fontsize=9)
        counted = f"symbol (positions from {first})" if not letters else "symbol"
        watched = "" if row is None else f"; row {row}, shaded, is watched"
        figure.supxlabel(f"{counted}{watched}", fontsize=9)
    return figure


def _draw(axes: "Axes", position: int, height: float, name: str, letters: bool) -> None:
    """Draw one symbol from 0 up to a height: its glyph, or a bar."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    colour = LOOKS[0]["color"]
    # A stop or a dash, stretched, would be a block: a bar is as good, its name below.
    if not letters or len(name) > 1 or not name.isalnum():
        axes.bar(position, height, BAR, color=colour, alpha=0.75, linewidth=0)
        if letters and len(name) > 1:
            axes.annotate(
                name,
                (position, 0),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90,
                fontsize=6,
                parse_math=False,
            )
        return
    font = FontProperties(family="DejaVu Sans Mono", weight="bold")
    glyph = TextPath((0, 0), name, size=1, prop=font, usetex=False)
    box = glyph.get_extents()
    stretch = Affine2D().translate(-(box.x0 + box.width / 2), -box.y0)
    stretch = stretch.scale(GLYPH / box.width, height / box.height)
    stretch = stretch.translate(position, 0)
    axes.add_patch(PathPatch(stretch.transform_path(glyph), color=colour, linewidth=0))
