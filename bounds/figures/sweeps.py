"""Figure of a sweep: a table of results, a row for each combination of flag values."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.figures import primitives as draw
from bounds.store.table import SWEPT
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Columns of a result that hold its length, and tell one series from another.
N, SERIES = "n", "weighting"
# Flags that choose a length, and those that choose among data of one form.
LENGTH_FLAGS, DATA_FLAGS = ("length", "lengths"), ("seed", "input")
WIDE_X, WIDE_Y = 8.0, 20.0  # ratios from which an axis is logarithmic

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Columns of a figure's axes, and those that divide its rows into lines."""

    x: str
    y: str
    lines: tuple[str, ...]


def choose_layout(
    rows: Sequence[Row],
    swept: Sequence[str],
    results: Iterable[str],
    x: str | None = None,
    y: str | None = None,
) -> Layout:
    """Layout of a sweep's figure; raises `InputError` for axes without a column.

    By default x is the length if it varies, else a swept flag; y is the first of `results`.
    A column that varies, other than x and `DATA_FLAGS`, has a line for each value; the first
    have not, while there are more than `MAX_SERIES`.
    """
    flags = {name: SWEPT + name for name in swept}
    columns = dict.fromkeys(name for row in rows for name in row)
    numbers = [n for n in columns if any(is_number(row.get(n)) for row in rows)]
    kinds = [flags[name] for name in swept if name not in DATA_FLAGS]
    series = () if SERIES in flags else (SERIES,)  # else the swept flag says it
    varying = [n for n in (N, *kinds, *series) if len(distinct(rows, n)) > 1]
    several = [n for n in varying if n != SERIES]
    counted = [n for n in several if all(is_number(row.get(n)) for row in rows)]
    across = [*counted, *several, *flags.values(), N][0]
    across = across if x is None else flags.get(x, x)
    up = y or next((name for name in results if name in numbers), None)
    for axis, asked, column, own in (("x", x, across, flags), ("y", y, up, {})):
        if column not in (*own.values(), *numbers):
            plain = (name for name in numbers if not name.startswith(SWEPT))
            offer = ", ".join(dict.fromkeys((*own, *plain)))
            if asked is None:
                raise InputError(f"nothing to draw; name one by --{axis}: {offer}")
            raise InputError(f"--{axis}={asked}: expected one of {offer}")
    lines = [n for n in varying if n not in (across, N)]
    if across == N:  # the flags that choose it tell nothing apart
        lines = [n for n in lines if n.removeprefix(SWEPT) not in LENGTH_FLAGS]
    while math.prod(len(distinct(rows, n)) for n in lines) > draw.MAX_SERIES:
        lines.pop(0)
    return Layout(across, str(up), tuple(lines))


def sweep_figure(rows: Sequence[Row], layout: Layout, quantity: str) -> "Figure":
    """Figure of column `layout.y` against `layout.x`, by values of `layout.lines`."""
    rows = [row for row in rows if is_number(row.get(layout.y))]
    lines: dict[str, list[Row]] = {}
    for row in rows:
        line = ", ".join(show_value(row.get(name)) for name in layout.lines)
        lines.setdefault(line, []).append(row)
    places = distinct(rows, layout.x)
    order, at_all = [*places], [*places.values()]
    numeric = all(map(is_number, at_all))
    name, every = name_axis(layout.x), np.array([row[layout.y] for row in rows], float)
    with draw.curves(quantity, None, name, x_scale="linear") as (figure, axes):
        for k, (line, chosen) in enumerate(lines.items()):
            at = [row.get(layout.x) for row in chosen]
            x = np.array(at if numeric else [order.index(show_value(v)) for v in at])
            y = np.array([row[layout.y] for row in chosen], float)
            # A line goes through the medians over seeds, inputs and flags without lines.
            draw.values(axes, x, y, k, line, np.median)
        if not numeric:
            axes.set_xticks(range(len(order)), order)
        elif min(at_all) > 0 and max(at_all) >= WIDE_X * min(at_all):
            axes.set_xscale("log", base=2)
        elif all(isinstance(place, int) for place in at_all):
            axes.locator_params("x", integer=True)
        sizes = np.abs(every)
        if sizes.max() >= WIDE_Y * sizes[sizes > 0].min(initial=np.inf):
            draw.scale_logarithms(axes, every)
        marks = sum(len(distinct(own, layout.x)) for own in lines.values())
        note = "lines: medians; light marks: every value\n"
        note = note if len(rows) > marks else ""
        title = note + ", ".join(map(name_axis, layout.lines))
        if layout.lines:
            draw.show_legend(figure, ncols=1, title=title)
        else:
            figure.supxlabel(title, fontsize=8)
    return figure


def distinct(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """Distinct values of the column `name` by their text, in the order of the rows."""
    return {show_value(value): value for value in (row.get(name) for row in rows)}


def is_number(value: Any) -> bool:
    """True if a value is a finite int or float, and no bool."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def show_value(value: Any) -> str:
    """Text of a value for titles and labels, floats in six digits."""
    if isinstance(value, list):
        return ",".join(map(show_value, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def name_axis(column: str) -> str:
    """Label of an axis: `--flag` for a swept flag's column, else the column in words."""
    if column.startswith(SWEPT):
        return f"--{column.removeprefix(SWEPT)}"
    return draw.LENGTH if column == N else column.replace("_", " ")
