"""The generated tables of a page: those between two marks, and what they should hold.

A table that a benchmark writes is compared with the one in a copy of the page that the
benchmark has just written to; one that a function returns, with what it returns now. Cells
agree up to stated digits; columns of seconds are not compared.
"""

import re
from collections.abc import Callable

from benchmarks.docs_check.agreement import same_line

SECONDS = re.compile(r"\bseconds\b|\btime\b")


def find_tables(text: str) -> dict[str, str]:
    """Returns what stands between marks in a page, by the name in the marks.

    Args:
        text: The page: `<!-- rows of NAME -->` twice, or `<!-- NAME -->` and
            `<!-- end of NAME -->`.
    """
    rows = re.compile(r"<!-- rows of (\w+) -->\n(.*?)\n<!-- rows of \1 -->", re.DOTALL)
    named = re.compile(r"<!-- (\w+) -->\n(.*?)\n<!-- end of \1 -->", re.DOTALL)
    return dict(rows.findall(text)) | dict(named.findall(text))


def function_tables() -> dict[str, Callable[[], str]]:
    """Returns the tables that functions return, by the names of their marks."""
    from bounds.entropy.audit import TABLES
    from bounds.lemma5.audit import all_findings, findings_table, harmonic_table

    audits: dict[str, Callable[[], str]] = {
        "findings": lambda: findings_table(all_findings()),
        "harmonic": harmonic_table,
    }
    return audits | dict(TABLES)


def table_difference(stated: str, found: str) -> str | None:
    """Returns the first row in which two tables differ, or None.

    Args:
        stated: A Markdown table.
        found: The same made anew.

    Returns:
        One line that shows both rows.
    """
    left, right = stated.strip().splitlines(), found.strip().splitlines()
    if len(left) != len(right):
        return f"{len(left)} lines are stated, {len(right)} are made"
    timed: set[int] = set()
    for wanted, made in zip(left, right, strict=True):
        cells = [line.split("|") for line in (wanted, made)]
        if set(wanted) <= set("|- "):
            continue
        if timed_now := {k for k, c in enumerate(cells[0]) if SECONDS.search(c)}:
            timed = timed_now
        if len(cells[0]) != len(cells[1]) or not all(
            same_line(a, b)
            for k, (a, b) in enumerate(zip(*cells, strict=True))
            if k not in timed
        ):
            return f"{made.strip()!r} is made, {wanted.strip()!r} is stated"
    return None
