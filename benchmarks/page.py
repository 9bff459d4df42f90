"""Markdown tables, and their places in the documentation pages, between two marks."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax_models as jm
from bounds.store.output import write_bytes

MARKS = "<!-- rows of {} -->"


def table_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table of a heading and rows of cells."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(row_text(line) for line in lines)


def column_table(
    columns: Mapping[str, Callable[[Any, Any], str]],
    measured: Sequence[tuple[Any, Any]],
) -> str:
    """Returns a Markdown table of rows, without columns that are empty in all rows."""
    cells = {
        heading: [text(config, row) for config, row in measured]
        for heading, text in columns.items()
    }
    filled = {heading: texts for heading, texts in cells.items() if any(texts)}
    return table_text(list(filled), zip(*filled.values(), strict=True))


def digits(value: float | None, count: int = 3) -> str:
    """Returns a number with `count` significant digits; "" for None."""
    if value is None:
        return ""
    if abs(value) >= 10 ** (count - 1) and abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.{count}g}"


def row_text(cells: Sequence[str]) -> str:
    """Returns one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def replace_table(page: Path, block: str, text: str) -> None:
    """Replaces the text between a block's two marks in a page."""
    mark = re.escape(MARKS.format(block))
    content = page.read_text()
    pattern = re.compile(f"({mark}\n).*?({mark})", re.DOTALL)
    if not pattern.search(content):
        raise jm.InputError(
            f"{page} does not have the mark {MARKS.format(block)} twice"
        )
    content = pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", content)
    write_bytes(page, content.encode())
