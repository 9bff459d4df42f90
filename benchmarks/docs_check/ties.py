"""Which numbers of a page are tied to a program, and to which.

A number that somebody typed is only as good as what would notice when it changes. Numbers
with a decimal point, an exponent or four digits and more, in a paragraph or a table that
no program writes, have to be tied by a mark (`benchmarks/docs_check/pages.py`), and times.
Smaller whole numbers count things that the sentence defines.
"""

import re
from collections.abc import Iterable

from benchmarks.docs_check.agreement import TIME, prose_alone, stated_numbers
from benchmarks.docs_check.pages import Block

RESULT = re.compile(r"\.\d|e|\d{4}")


def untied(block: Block) -> bool:
    """Returns whether a block states results or times that no mark ties to a source.

    Args:
        block: A part of a page.
    """
    if not block.is_typed or block.mark.sources:
        return False
    results = any(RESULT.search(text) for text in stated_numbers(block.text))
    return results or bool(TIME.search(prose_alone(block.text)))


def stated_beside(blocks: Iterable[Block], line: int, kind: str) -> str:
    """Returns what the page itself states in blocks that are checked on their own.

    Args:
        blocks: The blocks of the page.
        line: Where the numbers stand that are to be accounted for.
        kind: "numbers above" or "numbers below".

    Returns:
        The texts of what is run, printed or generated, and of tables whose own numbers
        are tied, all above or all below the line.
    """
    return "".join(
        f"{block.text}\n"
        for block in blocks
        if (block.line < line if kind == "numbers above" else block.line > line)
        and not block.is_paragraph
        and not untied(block)
    )
