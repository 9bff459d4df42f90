"""Records of parts of positions, as rows of a store.

A record has arrays over a part's substitutions, or over its rows of a scan's table:
values, and moves, the farthest that values get in runs with moved inputs. A screen or a
proposal adds lower and upper ends, and where these enclose. Of signed entries of a
target, which a map mixes, it has the table of each run instead.
"""

import base64
import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bounds.influence.result import Enclosures, Found, Level, MeasuredError

Record = Mapping[str, Any]
ENDS = ("lower", "upper", "enclosed")
ERROR = "measured_error"


def record_found(found: Found) -> dict[str, Any]:
    """Record of values, or of enclosures."""
    record = record_arrays([found.values, found.moves], found.magnitude)
    if not isinstance(found, Enclosures):
        return record
    record["arrays"] += [pack(getattr(found, name)) for name in ENDS]
    return record | {
        "left": found.left,
        "levels": list(map(dataclasses.asdict, found.levels)),
        **error_columns(found.error),
    }


def record_arrays(arrays: Sequence[np.ndarray], magnitude: float) -> dict[str, Any]:
    """Record of arrays of one shape."""
    texts = list(map(pack, arrays))
    return {"shape": arrays[0].shape, "arrays": texts, "magnitude": magnitude}


def join_arrays(records: Sequence[Record]) -> list[np.ndarray]:
    """Arrays of all parts, from their records in order."""
    read = ([unpack(x, *one["shape"]) for x in one["arrays"]] for one in records)
    return [np.concatenate(x) for x in zip(*read, strict=True)]


def read_found(arrays: Sequence[np.ndarray], records: Sequence[Record]) -> Found:
    """Values of joined arrays, or the enclosures of a screen, which has one record."""
    values, moves, *ends = arrays
    again = sum(one["again"] for one in records)
    computed = values, moves, max(one["magnitude"] for one in records), None
    if not ends:
        return Found(*computed, again=again)
    lower, upper, enclosed = ends
    (one,) = records
    left = np.asarray(one["left"], np.int64)
    levels = tuple(Level(**level) for level in one["levels"])
    ends = lower, upper, enclosed.astype(bool)
    return Enclosures(*computed, *ends, left, levels, read_error(one))


def read_error(found: Record) -> MeasuredError | None:
    """Measured error in a record; None without one."""
    if ERROR not in found:
        return None
    # JSON lacks infinity, which stands in the store as null.
    error: Any = {x: math.inf if y is None else y for x, y in found[ERROR].items()}
    return MeasuredError(**error)


def error_columns(error: MeasuredError | None) -> dict[str, Any]:
    """Column of a measured error, by name; {} if the error is None."""
    return {} if error is None else {ERROR: dataclasses.asdict(error)}


def pack(array: np.ndarray) -> str:
    """Text of a float64 array: its bytes, compressed, in base64."""
    content = np.ascontiguousarray(array, "<f8").tobytes()
    return base64.b64encode(zlib.compress(content, 1)).decode()


def unpack(text: str, *shape: int) -> np.ndarray:
    """Array of a shape from the text that `pack` made; `ValueError` for other text."""
    size = 8 * math.prod(shape)
    try:  # limited to the array's size, since a damaged text may expand to any size
        content = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return np.frombuffer(content, "<f8").reshape(shape)
