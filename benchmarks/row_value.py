"""Single numbers of stored rows, in the sentences of a page.

`<!-- value: SCRIPT on DEVICE, COLUMN, NAME=VALUE ... -->9.6<!-- end of value -->`: what
stands between is the number in that column of the one row whose config has these values,
with two digits or as many as `digits=K` says. Line breaks may stand in the mark, but no
line may begin with it: a comment there ends a paragraph in Markdown. Marks of README.md stand
in `benchmarks/docs_check/marks.toml`.
"""

import json
import re
from typing import Any

from benchmarks.page import digits
from benchmarks.results_file import FOLDER, read_lines, rows_of
from jax_models import InputError

VALUE = re.compile(
    r"(<!--\s+value:\s+(\w+)\s+on\s+([\w/-]+),\s+(\w+),\s+([^>]*?)\s*-->)(.*?)"
    r"(<!-- end of value -->)",
    re.DOTALL,
)


def fill_values(text: str) -> str:
    """Returns a page with the numbers of its sentences made anew.

    Args:
        text: The page.

    Raises:
        InputError: A mark does not name one row and a number in it, or begins a line.
    """

    def number(match: re.Match[str]) -> str:
        mark, script, device, column, conditions, _, end = match.groups()
        if text[: match.start()].endswith("\n") or not match.start():
            raise InputError(f"{mark} begins a line; put a word in front of it")
        wanted = _conditions(conditions)
        count = wanted.pop("digits", 2)
        return f"{mark}{digits(row_value(script, device, column, wanted), count)}{end}"

    return VALUE.sub(number, text)


def row_value(script: str, device: str, column: str, wanted: dict[str, Any]) -> float:
    """Returns a number of the one row that a script has of a config on a device.

    Args:
        script: The benchmark.
        device: A file of rows, without its suffix.
        column: A name in the row.
        wanted: Names and values in its config.

    Raises:
        InputError: There is no such row, or there are several, or it has no such number.
    """
    found = [
        row
        for config, row in rows_of(read_lines(FOLDER / f"{device}.jsonl"), script)
        if all(config.get(name) == value for name, value in wanted.items())
    ]
    what = f"{script} on {device}, {wanted}"
    if len(found) != 1:
        raise InputError(f"{what}: {len(found)} rows are stored, expected one")
    value = found[0].get(column)
    if not isinstance(value, int | float):
        raise InputError(f"{what}: the row has no number {column!r}")
    return value


def _conditions(text: str) -> dict[str, Any]:
    """Returns the entries `name=value` of a mark; values are JSON or else words."""
    entries = (entry.partition("=") for entry in text.split())
    return {name: _parsed(value) for name, _, value in entries}


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value
