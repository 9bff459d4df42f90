"""Figure of a sweep: a result against a flag or the length, a line per combination.

Lines go through the medians of the values at one place, its seeds and inputs; every value
stands as a light mark. Numbers that range widely are on logarithmic axes, near zero linear
where there are zeros.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from bounds.batch.layout import Layout, Row, is_number, name_axis, show_value, values
from bounds.figures.primitives import (
    COLUMN,
    draw_values,
    label_logarithms,
    new_figure,
    show_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Letters of a label beyond which labels stand below one another.
LONG_LABEL = 28
# More panels are no longer read; these many are shown, evenly chosen.
MOST_PANELS, PANELS_PER_ROW = 12, 3
# Ratios from which an axis is logarithmic.
WIDE_X, WIDE_Y = 8.0, 20.0


def sweep_figure(rows: Sequence[Row], layout: Layout, quantity: str) -> "Figure":
    """Figure of the rows that have numbers in column y; `quantity` names y."""
    rows = [row for row in rows if is_number(row.get(layout.y))]
    cells = layout.group(rows)
    index = {line: k for k, line in enumerate(dict.fromkeys(chain(*cells.values())))}
    shown = [*cells.items()][:: -(-len(cells) // MOST_PANELS)]
    across = min(PANELS_PER_ROW, len(shown))
    down = -(-len(shown) // across)
    size = (COLUMN if across == 1 else 2.8 * across, 0.6 + 3.0 * down)
    places = values(rows, layout.x)
    numeric, repeated = all(map(is_number, places)), False
    labels: list[str] = []
    with new_figure(size, down, across, sharex=True, sharey=True) as (figure, grid):
        for axes, (panel, own) in zip(grid, shown, strict=False):
            axes.set_title(panel, fontsize=8)
            axes.set_xlabel(name_axis(layout.x))
            for line, chosen in own.items():
                at = (row.get(layout.x) for row in chosen)
                x = np.array([*(at if numeric else map(places.index, at))])
                y = np.array([row[layout.y] for row in chosen], float)
                label = "" if line in labels else line
                draw_values(axes, x, y, index[line], label, np.median)
                labels.append(line)
                repeated |= len(x) != len(np.unique(x))
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        for axes in grid[::across]:
            axes.set_ylabel(quantity)
        _scale(grid[0], places, numeric, np.array([row[layout.y] for row in rows]))
        if len(shown) < len(cells):
            figure.suptitle(f"{len(shown)} of {len(cells)} panels", fontsize=8)
        notes = ["lines: medians; light marks: every value"] if repeated else []
        title = "\n".join([*notes, ", ".join(map(name_axis, layout.lines))]).strip()
        if layout.lines:
            columns = 1 if max(map(len, labels)) > LONG_LABEL else 2
            show_legend(figure, ncols=columns, title=title)
        elif title:
            figure.supxlabel(title, fontsize=8)
    return figure


def _scale(
    axes: "Axes", places: list[Any], numeric: bool, y: Shaped[np.ndarray, "points"]
) -> None:
    """Chooses the scales of both axes, which all panels share."""
    if not numeric:
        axes.set_xticks(range(len(places)), [*map(show_value, places)])
    elif min(places) > 0 and max(places) >= WIDE_X * min(places):
        axes.set_xscale("log", base=2)
    elif all(isinstance(place, int) for place in places):
        axes.locator_params("x", integer=True)
    sizes = np.abs(y[y != 0])
    if len(sizes) and sizes.max() >= WIDE_Y * sizes.min():
        near_zero = {} if y.min() > 0 else {"linthresh": sizes.min()}
        axes.set_yscale("symlog" if near_zero else "log", **near_zero)
    label_logarithms(axes)
