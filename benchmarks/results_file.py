"""Files of benchmark rows: one line of JSON per row, one file per kind of device.

A line has `config` (all that decides the row), `row`, `versions`, `seconds` (wall time of
measuring it), `git_commit` and `finished`; what is not known of a row is null or left out.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.script import Measured
from bounds.store.output import write_bytes
from jax_models import InputError

Line: TypeAlias = Mapping[str, Any]

FOLDER = Path(__file__).parent / "results"
FIELDS = {"config", "row", "versions", "seconds", "git_commit", "finished"}


def results_files(folder: Path = FOLDER) -> dict[str, Path]:
    """Returns the files of rows by the names of their devices, in order.

    Args:
        folder: Where they are.
    """
    return {path.stem: path for path in sorted(folder.glob("*.jsonl"))}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a file; none where there is no file.

    Args:
        path: A file of rows.

    Raises:
        InputError: A line is no row.
    """
    if not path.is_file():
        return []
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{number}: this is no JSON: {error}") from error
        if not isinstance(line, dict) or FIELDS - line.keys():
            missing = sorted(FIELDS - set(line))
            raise InputError(f"{path}:{number}: a row has no {', '.join(missing)}")
        lines.append(line)
    return lines


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Writes a file of rows.

    Args:
        path: The file; one that is there is replaced.
        lines: The rows, in order.
    """
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_bytes(path, text.encode())


def rows_of(lines: Iterable[Line], command: str) -> Measured:
    """Returns the configs and rows of one script.

    Args:
        lines: Those of a file.
        command: The script.
    """
    return [
        (line["config"], line["row"])
        for line in lines
        if line["config"]["command"] == command
    ]
