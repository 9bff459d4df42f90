"""Tables as lines of text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Characters of a line of explanation.
WIDTH = 96


def column_table(
    rows: Iterable[Mapping[str, Any]],
    columns: Iterable[tuple[str, str]],
    show: Callable[[str, Any], str],
) -> list[str]:
    """Lines of a table of columns, each a header and a key, without empty columns."""
    rows = list(rows)
    shown = [c for c in columns if any(row.get(c[1]) is not None for row in rows)]
    lines = [[header for header, _ in shown]]
    for row in rows:
        cells = [(key, row.get(key)) for _, key in shown]
        lines.append(["-" if x is None else show(key, x) for key, x in cells])
    return aligned(lines)


def ruled(table: Sequence[str]) -> list[str]:
    """Lines of a table with rules above, below and under its heading."""
    rule = "-" * len(table[0])
    return [rule, table[0], rule, *table[1:], rule]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as text, columns aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
