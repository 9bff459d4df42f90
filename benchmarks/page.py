"""Markdown tables, and their places in the documentation pages, between two marks."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax_models as jm
from bounds.output import write_bytes

MARKS = "<!-- rows of {} -->"


def table_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table of a heading and rows of cells."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(row_text(line) for line in lines)


def row_text(cells: Sequence[str]) -> str:
    """Returns one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def replace_table(page: Path, block: str, text: str) -> None:
    """Replaces what stands between a block's two marks in a page.

    Args:
        page: A Markdown file.
        block: What the marks name.
        text: The new table, without a line break at its end.

    Raises:
        InputError: The page does not have the mark twice.
    """
    mark = re.escape(MARKS.format(block))
    content = page.read_text()
    pattern = re.compile(f"({mark}\n).*?({mark})", re.DOTALL)
    if not pattern.search(content):
        raise jm.InputError(
            f"{page} does not have the mark {MARKS.format(block)} twice"
        )
    content = pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", content)
    write_bytes(page, content.encode())
