"""The figure of a sweep: a result against a flag or the length, a line per combination.

Lines go through the medians of the values at one place, its seeds and inputs; every value
stands as a light mark. Numbers that range widely are on logarithmic axes, near zero linear
where there are zeros.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.figures.primitives import (
    COLUMN,
    LENGTH,
    MAX_SERIES,
    draw_values,
    label_logarithms,
    new_figure,
    show_legend,
)
from bounds.store.sweep_table import SWEPT
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Columns of a result that hold its length, and tell one series from another.
N, SERIES = "n", "weighting"
LENGTH_FLAGS = ("length", "lengths")
# Axes of main results in words; others are called as their columns are.
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
# Of them those in units of the watched quantity.
INFLUENCES = ("influence_upper", "max")
# Letters of a label beyond which labels stand below one another.
LONG_LABEL = 28
# More panels are no longer read; these many are shown, evenly chosen.
MOST_PANELS, PANELS_PER_ROW = 12, 3
# Ratios from which an axis is logarithmic.
WIDE_X, WIDE_Y = 8.0, 20.0

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Columns of both axes, and those whose combinations are panels, and lines."""

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
    """Columns that are drawn of the rows of a sweep; an InputError where x or y is none.

    By default x is the length if it varies, else the first swept flag of numbers, else the
    first swept flag; y is the first of `results`. A column that varies, other than x and
    the flags in `data`, which only choose seeds and inputs, is a line for each value; from
    the first flag on such columns become panels, until a panel's lines can be told apart.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    flags = {name: SWEPT + name for name in swept}
    numbers = [n for n in columns if any(is_number(row.get(n)) for row in rows)]
    plain = [name for name in numbers if not name.startswith(SWEPT)]
    kinds = [flags[name] for name in swept if name not in data]
    lengths = [N] if len(values(rows, N)) > 1 else []
    varying = [n for n in (*kinds, SERIES) if len(values(rows, n)) > 1]
    several = [n for n in varying if n != SERIES]
    counted = [n for n in several if all(is_number(row.get(n)) for row in rows)]
    across = [*lengths, *counted, *several, *flags.values(), N][0]
    across = across if x is None else flags.get(x, x)
    if x is not None and across not in (*flags.values(), *numbers):
        raise InputError(f"--x={x}: {_offer([*swept, *plain])}")
    if y is not None and y not in numbers:
        raise InputError(f"--y={y}: {_offer(plain)}")
    up = y or next((name for name in results if name in numbers), None)
    if up is None:
        raise InputError(f"nothing to draw; name a column by --y: {_offer(plain)}")
    lines = [n for n in varying if n != across]
    if flags.get(SERIES) in lines and SERIES in lines:
        lines.remove(SERIES)  # the swept flag says it
    if across == N:  # the flags that choose it tell nothing apart
        lines = [n for n in lines if n.removeprefix(SWEPT) not in LENGTH_FLAGS]
    panels: list[str] = []
    while lines and math.prod(len(values(rows, n)) for n in lines) > MAX_SERIES:
        panels.append(lines.pop(0))
    return Layout(across, up, tuple(panels), tuple(lines))


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """Distinct values of a column, in the order of the rows."""
    found: list[Any] = []
    for row in rows:
        if (value := row.get(name)) not in found:
            found.append(value)
    return found


def is_number(value: Any) -> bool:
    """Whether a value can stand on an axis of numbers."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _offer(names: Sequence[str]) -> str:
    return f"expected one of {', '.join(dict.fromkeys(names))}"


def sweep_figure(rows: Sequence[Row], layout: Layout, unit: str = "") -> "Figure":
    """Figure of the rows that have numbers in column y; `unit` is of influences."""
    rows = [row for row in rows if is_number(row.get(layout.y))]
    panels = list(dict.fromkeys(_values(row, layout.panels) for row in rows))
    shown = panels[:: -(-len(panels) // MOST_PANELS)]
    lines = list(dict.fromkeys(_values(row, layout.lines) for row in rows))
    across = min(PANELS_PER_ROW, len(shown))
    down = -(-len(shown) // across)
    size = (COLUMN if across == 1 else 2.8 * across, 0.6 + 3.0 * down)
    quantity = WORDS.get(layout.y, layout.y.replace("_", " "))
    quantity += f"\n({unit})" if layout.y in INFLUENCES and unit else ""
    places = values(rows, layout.x)
    numeric, repeated = all(map(is_number, places)), False
    with new_figure(size, down, across, sharex=True, sharey=True) as (figure, grid):
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        labels: list[str] = []
        for axes, panel in zip(grid, shown, strict=False):
            flags = zip(layout.panels, panel, strict=True)
            names = (f"{flag.removeprefix(SWEPT)} = {value}" for flag, value in flags)
            axes.set_title(", ".join(names), fontsize=8)
            axes.set_xlabel(_axis_name(layout.x))
            some = [row for row in rows if _values(row, layout.panels) == panel]
            for k, line in enumerate(lines):
                chosen = [row for row in some if _values(row, layout.lines) == line]
                if not chosen:
                    continue
                at = (row.get(layout.x) for row in chosen)
                x = np.array([*(at if numeric else map(places.index, at))])
                y = np.array([row[layout.y] for row in chosen], float)
                label = ", ".join(line)
                draw_values(axes, x, y, k, "" if label in labels else label, np.median)
                labels.append(label)
                repeated |= len(x) != len(np.unique(x))
        for axes in grid[::across]:
            axes.set_ylabel(quantity)
        _scale(grid[0], places, numeric, np.array([row[layout.y] for row in rows]))
        if len(shown) < len(panels):
            figure.suptitle(f"{len(shown)} of {len(panels)} panels", fontsize=8)
        notes = ["lines: medians; light marks: every value"] if repeated else []
        title = "\n".join([*notes, ", ".join(map(_axis_name, layout.lines))]).strip()
        if layout.lines:
            columns = 1 if max(map(len, labels)) > LONG_LABEL else 2
            show_legend(figure, ncols=columns, title=title)
        elif title:
            figure.supxlabel(title, fontsize=8)
    return figure


def _scale(axes: "Axes", places: list[Any], numeric: bool, y: np.ndarray) -> None:
    """Chooses the scales of both axes, which all panels share."""
    if not numeric:
        axes.set_xticks(range(len(places)), [*map(_write, places)])
    elif min(places) > 0 and max(places) >= WIDE_X * min(places):
        axes.set_xscale("log", base=2)
    elif all(isinstance(place, int) for place in places):
        axes.locator_params("x", integer=True)
    sizes = np.abs(y[y != 0])
    if len(sizes) and sizes.max() >= WIDE_Y * sizes.min():
        near_zero = {} if y.min() > 0 else {"linthresh": sizes.min()}
        axes.set_yscale("symlog" if near_zero else "log", **near_zero)
    label_logarithms(axes)


def _values(row: Row, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Values of a row in some columns, as they are shown."""
    return tuple(_write(row.get(column)) for column in columns)


def _axis_name(column: str) -> str:
    """Name of a column in words, of a swept flag the flag."""
    if column.startswith(SWEPT):
        return f"--{column.removeprefix(SWEPT)}"
    return LENGTH if column == N else column.replace("_", " ")


def _write(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_write, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
