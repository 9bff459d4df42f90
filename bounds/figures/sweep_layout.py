"""Layout of a sweep's figure: columns of its axes, and of its panels and lines."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bounds.store.table import SWEPT
from jax_models.errors import InputError

# Columns of a result that hold its length, and tell one series from another.
N, SERIES = "n", "weighting"
LENGTH_FLAGS = ("length", "lengths")

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Columns of a figure's axes, and those that divide its rows into panels and lines."""

    x: str
    y: str
    panels: tuple[str, ...]
    lines: tuple[str, ...]

    def group(self, rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
        """Rows by the name of their panel, then by the name of their line."""
        groups: dict[str, dict[str, list[Row]]] = {}
        for row in rows:
            named = ((x.removeprefix(SWEPT), row.get(x)) for x in self.panels)
            panel = ", ".join(f"{name} = {show_value(value)}" for name, value in named)
            line = ", ".join(show_value(row.get(name)) for name in self.lines)
            groups.setdefault(panel, {}).setdefault(line, []).append(row)
        return groups


def choose_layout(
    rows: Sequence[Row],
    swept: Sequence[str],
    data: Collection[str],
    results: Iterable[str],
    most_lines: int,
    axes: tuple[str | None, str | None] = (None, None),
) -> Layout:
    """Layout of a sweep's figure; raises `InputError` for axes without a column.

    By default x is the length if it varies, else a swept flag; y is the first of `results`.
    A column that varies, other than x and the flags in `data`, is a line for each value;
    the first become panels, while a panel has more than `most_lines`.
    """
    x, y = axes
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
    while lines and math.prod(len(values(rows, n)) for n in lines) > most_lines:
        panels.append(lines.pop(0))
    return Layout(across, up, tuple(panels), tuple(lines))


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """Distinct values of the column `name`, in the order of the rows."""
    found: list[Any] = []
    for row in rows:
        if (value := row.get(name)) not in found:
            found.append(value)
    return found


def is_number(value: Any) -> bool:
    """Whether a value is a finite int or float, and no bool."""
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
    return "length n (tokens)" if column == N else column.replace("_", " ")


def _offer(names: Sequence[str]) -> str:
    return f"expected one of {', '.join(dict.fromkeys(names))}"
