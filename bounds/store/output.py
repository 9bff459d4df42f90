"""Writing result files: whole or not at all, and JSON without NaN."""

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_models.arguments import expect_file
from jax_models.atomic import write_atomically

FORMATS = ("png", "pdf", "svg")  # of figures


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file atomically and makes its folder; if that fails, an old file stays."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a value as indented JSON, atomically, with null for NaN and infinity."""
    text = json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    # Bytes of a file name that are no UTF-8 become escapes, which JSON has.
    write_bytes(path, (text + "\n").encode(errors="backslashreplace"))


def write_csv(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
) -> None:
    """Writes rows as CSV, atomically; a missing value is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    write_bytes(path, text.getvalue().encode(errors="backslashreplace"))


def sha256(data: bytes) -> str:
    """Returns the SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    with open(expect_file("file", path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """JSON text, the same for equal values: keys sorted, no spaces; 1 is not 1.0."""
    return json.dumps(
        plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def plain(value: Any) -> Any:
    """Value in JSON's own types, None for NaN and infinity; a TypeError for other types."""
    match value:
        case None | bool() | str():
            return value
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise TypeError(f"JSON keys are strings, not {list(value)!r}")
            return {key: plain(entry) for key, entry in value.items()}
        case Sequence():
            return [plain(entry) for entry in value]
    raise TypeError(f"JSON has no form for {type(value).__name__} {value!r}")


def _cell(value: Any) -> Any:
    """Field of a CSV file for a value: empty for None and NaN, JSON for lists and dicts."""
    value = plain(value)
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return canonical_json(value)
    return value
