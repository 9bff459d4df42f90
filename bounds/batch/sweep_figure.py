"""The figure of a sweep: a result against a flag or the length, a line per combination.

It takes rows as a store gives them, never a model. Lines go through the medians of what a
line has at one place, its seeds and inputs; every value stands as a light mark.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.figures import LOOKS, MAX_SERIES
from bounds.curves.ticks import label_logarithms
from bounds.store.sweep_table import SWEPT
from jax_models.errors import InputError

# Columns of a result that tell its length, and one series from another.
LENGTH, SERIES = "n", "weighting"
LENGTH_FLAGS = ("length", "lengths")
# Main results and their axes in words; others are called as their columns are.
WORDS = {
    "influence_upper": "maximum influence (upper end)",
    "max": "maximum influence",
    "estimate": "Lipschitz constant, estimated (‖Δy‖ / ‖Δ embedding‖)",
    "error_certificate": "error at the certified temperature",
    "tau_certificate": "certified temperature τ",
    "gap": "smallest gap of scores",
    "free": "free positions",
    "model": "cross-entropy of the model (nats per symbol)",
    "optimal": "optimal cross-entropy (nats per symbol)",
}

# Of them those in units of what is watched.
INFLUENCES = ("influence_upper", "max")

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which columns of a sweep's table are drawn.

    Attributes:
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        panels: Columns whose combinations are panels.
        lines: Columns whose combinations are lines.
    """

    x: str
    y: str
    panels: tuple[str, ...]
    lines: tuple[str, ...]


def choose_layout(
    rows: Sequence[Row],
    swept: Sequence[str],
    data: Collection[str],
    results: Sequence[str],
    x: str | None = None,
    y: str | None = None,
) -> Layout:
    """Returns how the rows of a sweep are drawn.

    Args:
        rows: Of the sweep's table; not empty.
        swept: Names of the swept flags, in order.
        data: Those of them that only choose among data: seeds, inputs.
        results: Columns that may be the main result, the most telling first.
        x: A swept flag or a column of numbers; by default the length if it varies, else
            the first swept flag of numbers, else the first swept flag.
        y: A column of numbers; by default the first of `results` that is there.

    Returns:
        The layout. What varies beside x is a line each; from the first flag on such
        columns become panels, until the lines of a panel can be told apart.

    Raises:
        InputError: x or y is no such column.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    flags = {name: SWEPT + name for name in swept}
    numbers = [
        name for name in columns if any(is_number(row.get(name)) for row in rows)
    ]
    plain = [name for name in numbers if not name.startswith(SWEPT)]
    kinds = [flags[name] for name in swept if name not in data]
    if x is not None:
        across = flags.get(x, x)
        if across not in (*flags.values(), *numbers):
            raise InputError(f"--x={x}: {_offer([*swept, *plain])}")
    elif LENGTH in columns and _varies(rows, LENGTH):
        across = LENGTH
    else:
        several = [name for name in kinds if _varies(rows, name)]
        counted = [
            name for name in several if all(is_number(r.get(name)) for r in rows)
        ]
        across = next(iter([*counted, *several, *flags.values(), LENGTH]))
    if y is not None and y not in numbers:
        raise InputError(f"--y={y}: {_offer(plain)}")
    up = y or next((name for name in results if name in numbers), None)
    if up is None:
        raise InputError(f"nothing to draw; name a column by --y: {_offer(plain)}")
    apart = [
        name for name in (*kinds, SERIES) if name != across and _varies(rows, name)
    ]
    if flags.get(SERIES) in apart and SERIES in apart:
        apart.remove(SERIES)  # the swept flag says it
    if across == LENGTH:  # the flags that choose it tell nothing apart
        apart = [name for name in apart if name.removeprefix(SWEPT) not in LENGTH_FLAGS]
    panels: list[str] = []
    while apart and math.prod(len(values(rows, name)) for name in apart) > MAX_SERIES:
        panels.append(apart.pop(0))
    return Layout(across, up, tuple(panels), tuple(apart))


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """Returns what a column holds, each once, in the order of the rows."""
    found: list[Any] = []
    for row in rows:
        if (value := row.get(name)) not in found:
            found.append(value)
    return found


def is_number(value: Any) -> bool:
    """Returns whether a value can stand on an axis of numbers."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _varies(rows: Sequence[Row], name: str) -> bool:
    return len(values(rows, name)) > 1


def _offer(names: Sequence[str]) -> str:
    return f"expected one of {', '.join(dict.fromkeys(names))}"


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Letters of a label beyond which labels stand below one another.
LONG_LABEL = 28
# More panels are no longer read; these many are shown, evenly chosen.
MOST_PANELS = 12
PANELS_PER_ROW = 3
# Ratios from which an axis is logarithmic.
WIDE_X, WIDE_Y = 8.0, 20.0


def sweep_figure(rows: Sequence[Row], layout: Layout, unit: str = "") -> "Figure":
    """Draw the rows of a sweep.

    Args:
        rows: Of the sweep's table, some of them with numbers in the column y.
        layout: Which columns go where.
        unit: Of influences.

    Returns:
        The figure: panels with the same axes, one legend. Numbers that range widely are
        on logarithmic axes, near zero linear where there are zeros.
    """
    from matplotlib.figure import Figure

    rows = [row for row in rows if is_number(row.get(layout.y))]
    panels = list(dict.fromkeys(_names(row, layout.panels) for row in rows))
    shown = panels[:: -(-len(panels) // MOST_PANELS)]
    lines = list(dict.fromkeys(_names(row, layout.lines) for row in rows))
    across = min(PANELS_PER_ROW, len(shown))
    down = -(-len(shown) // across)
    width = 5.2 if across == 1 else 2.8 * across
    figure = Figure(figsize=(width, 0.6 + 3.0 * down), layout="constrained")
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    places = values(rows, layout.x)
    for axes, panel in zip(grid.flat, shown, strict=False):
        axes.set_title(", ".join(panel), fontsize=8)
        axes.set_xlabel(_axis_name(layout.x))
        for index, line in enumerate(lines):
            chosen = [
                row
                for row in rows
                if _names(row, layout.panels) == panel
                and _names(row, layout.lines) == line
            ]
            if chosen:
                label = ", ".join(_told(chosen[0].get(name)) for name in layout.lines)
                _draw_line(axes, chosen, layout, places, index, label)
    quantity = WORDS.get(layout.y, layout.y.replace("_", " "))
    if layout.y in INFLUENCES and unit:
        quantity += f"\n({unit})"
    for axes in grid[:, 0]:
        axes.set_ylabel(quantity)
    _scale(grid.flat[0], rows, layout, places)
    if len(shown) < len(panels):
        figure.suptitle(f"{len(shown)} of {len(panels)} panels", fontsize=8)
    handles = {
        label: handle
        for axes in grid.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    repeated = any(
        len(line.get_xdata()) != len(np.unique(line.get_xdata()))
        for axes in grid.flat
        for line in axes.lines
    )
    told = ["lines: medians; light marks: every value"] if repeated else []
    title = "\n".join([*told, ", ".join(map(_axis_name, layout.lines))]).strip()
    if any(handles):
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=1 if max(map(len, handles)) > LONG_LABEL else 2,
            frameon=False,
            fontsize=8,
            title=title,
            title_fontsize=8,
        )
    elif title:
        figure.supxlabel(title, fontsize=8)
    return figure


def _draw_line(
    axes: "Axes",
    rows: Sequence[Row],
    layout: Layout,
    places: list[Any],
    index: int,
    label: str,
) -> None:
    """Draw every value of a line, and the medians."""
    numeric = all(map(is_number, places))
    x = np.array(
        [row[layout.x] if numeric else places.index(row.get(layout.x)) for row in rows]
    )
    y = np.array([row[layout.y] for row in rows], float)
    look: dict[str, Any] = LOOKS[index]
    axes.plot(x, y, **{**look, "linestyle": "none"}, markersize=3, alpha=0.35)
    at = np.unique(x)
    middle = [np.median(y[x == place]) for place in at]
    axes.plot(
        at,
        middle,
        # Later lines are finer, so that one which coincides with an earlier one shows.
        linewidth=2.4 - 0.25 * index,
        markersize=7.0 - 0.6 * index,
        label=label,
        **look,
    )


def _scale(
    axes: "Axes", rows: Sequence[Row], layout: Layout, places: list[Any]
) -> None:
    """Choose the scales of both axes, which all panels share."""
    if not all(map(is_number, places)):
        axes.set_xticks(range(len(places)), [_told(place) for place in places])
    elif min(places) > 0 and max(places) >= WIDE_X * min(places):
        axes.set_xscale("log", base=2)
    elif all(isinstance(place, int) for place in places):
        axes.locator_params("x", integer=True)
    sizes = np.abs([row[layout.y] for row in rows])
    positive = sizes[sizes > 0]
    if len(positive) and positive.max() >= WIDE_Y * positive.min():
        if min(row[layout.y] for row in rows) > 0:
            axes.set_yscale("log")
        else:
            axes.set_yscale("symlog", linthresh=positive.min())
    label_logarithms(axes)


def _names(row: Row, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what tells a row apart, as it is shown."""
    return tuple(
        f"{name.removeprefix(SWEPT)} = {_told(row.get(name))}" for name in columns
    )


def _axis_name(column: str) -> str:
    """Returns what a column is in words, of a swept flag the flag."""
    if column.startswith(SWEPT):
        return f"--{column.removeprefix(SWEPT)}"
    return "length n (tokens)" if column == LENGTH else column.replace("_", " ")


def _told(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_told, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
