"""What of a sweep's table goes where in its figure: axes, lines, panels."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bounds.batch.export import SWEPT
from bounds.figures import MAX_SERIES
from jax_models.errors import InputError

# Columns of a result that tell its length, and one series from another.
LENGTH, SERIES = "n", "weighting"
LENGTH_FLAGS = ("length", "lengths")

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
