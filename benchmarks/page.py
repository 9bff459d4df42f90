"""The tables of the documentation pages, each between two marks of its own."""

import re
from pathlib import Path

import jax_models as jm
from bounds.output import write_bytes

MARKS = "<!-- rows of {} -->"


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
