"""A table: rows with named columns, read from a store or built by a sweep.

A sweep runs a command for several values of its flags; a cell is one of the runs.
"""

import abc
import dataclasses
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from bounds.store import output
from jax_models.on_demand import require_package

SHOWN = 8  # columns that a table names where it is shown


class Rows(abc.ABC):
    """Rows with named columns, in order; a name that a row lacks is missing there."""

    @abc.abstractmethod
    def _rows(self) -> tuple[Mapping[str, Any], ...]:
        """One mapping from column name to value per row."""

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self._rows())

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Go through the rows."""
        return iter(self._rows())

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        """Returns one row."""
        return self._rows()[index]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order they are first met."""
        return tuple(dict.fromkeys(name for row in self._rows() for name in row))

    def column(self, name: str) -> Shaped[np.ndarray, "rows"]:
        """Returns one column as an array.

        Returns:
            One entry per row: integers, floats (NaN where a number is missing),
            booleans or strings; an object array where kinds are mixed or anything
            else is missing.

        Raises:
            KeyError: No row has such a column.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        values = [row.get(name) for row in self._rows()]
        kinds, numbers = {type(value) for value in values}, {int, float}
        if kinds & numbers and kinds <= {*numbers, type(None)} and kinds != {int}:
            return np.array(values, float)
        if len(kinds) == 1 and kinds <= {int, bool, str}:
            return np.array(values)
        array = np.empty(len(values), object)
        array[:] = values
        return array

    def to_numpy(self) -> dict[str, Shaped[np.ndarray, "rows"]]:
        """Returns all columns as arrays, by name."""
        return {name: self.column(name) for name in self.columns}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV, atomically, in place of a file that is there.

        Raises:
            OSError: The file cannot be written.
        """
        output.write_csv(path, self.columns, self._rows())

    def to_json_lines(self, path: str | os.PathLike[str]) -> None:
        """Write the table as JSON lines, atomically, in place of a file that is there.

        Each row is an object, without names that the row lacks; NaN and infinity are null.

        Raises:
            OSError: The file cannot be written.
        """
        lines = [output.canonical_json(row) + "\n" for row in self._rows()]
        output.write_bytes(path, "".join(lines).encode())

    def to_pandas(self) -> Any:
        """Returns the table as a pandas DataFrame, its columns as in `to_numpy`.

        Raises:
            InputError: pandas is not installed.
        """
        pandas = require_package("pandas", "a DataFrame")
        return pandas.DataFrame(self.to_numpy(), columns=list(self.columns))

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the table as Parquet, atomically, in place of a file that is there.

        A column of one kind (booleans, integers of 64 bits, floats, strings) keeps it,
        with nulls where a value is missing; of any other, each value is written as JSON.

        Raises:
            InputError: pyarrow is not installed.
            OSError: The file cannot be written.
        """
        pyarrow = require_package("pyarrow", "a Parquet file")
        parquet = require_package("pyarrow.parquet", "a Parquet file")
        columns = {
            name: pyarrow.array(_of_one_kind([row.get(name) for row in self._rows()]))
            for name in self.columns
        }
        file = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), file)
        output.write_bytes(path, file.getvalue())


@dataclasses.dataclass(frozen=True, repr=False)
class Table(Rows):
    """Rows with named columns, in order; a name that a row lacks is missing there.

    >>> Table(({"n": 16, "influence": 0.5}, {"n": 32, "influence": 0.25}))
    Table(2 rows of 2 columns: n, influence)

    Attributes:
        rows: One mapping from column name to value per row.
    """

    rows: tuple[Mapping[str, Any], ...]

    def __repr__(self) -> str:
        """Numbers of rows and columns, and the names of the first columns, in one line."""
        names = self.columns
        shown = [*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])]
        size = f"{len(self)} row{'s' * (len(self) != 1)} of {len(names)} column"
        size += "s" * (len(names) != 1)
        return f"{type(self).__name__}({size}: {', '.join(shown) or 'none'})"

    def _rows(self) -> tuple[Mapping[str, Any], ...]:
        return self.rows


def _of_one_kind(values: list[Any]) -> list[Any]:
    """Returns a column's values: as they are if of one type, else as floats or JSON."""
    values = [output.plain(value) for value in values]
    kinds = {type(value) for value in values if value is not None}
    if any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in values):
        kinds = {int, list}  # no kind of Parquet's holds them
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) <= 1 and not kinds & {list, dict}:
        return values
    return [None if value is None else output.canonical_json(value) for value in values]


# What the column of a swept flag is called before its name: a result may have the same.
SWEPT = "sweep."


def sweep_table(stored: Table, keys: Sequence[str], swept: Sequence[str]) -> Table:
    """Table of a sweep: rows of each finished cell in `keys`, one for a failed cell."""
    kept: dict[str, Mapping[str, Any]] = {row["key"]: row for row in stored}
    found = []
    for key in keys:
        if (row := kept.get(key)) is None:
            continue
        head = {"status": row["status"], "message": row["message"]}
        for name in swept:
            value = row.get(f"config.{name}")
            if isinstance(value, list) and len(value) == 1:
                (value,) = value
            head[SWEPT + name] = value
        tail = {"cell_seconds": row["seconds"], "cell_key": row["key"]}
        found += [{**head, **entry, **tail} for entry in row.get("rows") or [{}]]
    return Table(tuple(found))
