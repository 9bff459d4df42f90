"""The result store: one SQLite file, one row per finished cell.

A cell is one computation, named by its full configuration; the row's key is the
SHA-256 of that configuration as canonical JSON. Each row is written in its own
transaction, so a run that is killed at any moment loses at most the cell it was
working on and goes on from there. One client at a time writes; others may read.
"""

import contextlib
import datetime
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bounds.store.file import (
    COLUMNS,
    StoreBusyError,
    StoreError,
    check,
    explained,
    lock,
    log_of,
    prepare,
)
from bounds.store.output import canonical_json, sha256
from bounds.store.provenance import Provenance, provenance
from bounds.store.sweep_table import sweep_table
from bounds.store.table import Table
from jax_models.arguments import expect_file
from jax_models.errors import InputError

__all__ = [
    "ResultStore",
    "StoreBusyError",
    "StoreError",
    "cell_key",
    "read_cells",
    "read_store",
]

# The configuration of the one row that is no cell: what the store's sweep consists of.
SWEEP = {"command": "batch", "cell": "sweep"}


class ResultStore:
    """The rows of one store, open for one writing client.

    A context manager: leaving it closes the file and lets the next client in. The
    lock is the operating system's, so it ends with the process, however that ends.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wait_seconds: float = 5.0,
        fresh: bool = False,
    ):
        """Open a store, making it and its folder where there is none.

        Args:
            path: The SQLite file.
            wait_seconds: How long to wait for another client to finish.
            fresh: Begin a store of another schema anew.

        Raises:
            StoreBusyError: Another client still holds the store.
            StoreError: The file is damaged, is not a result store, or has another
                schema.
            OSError: The folder cannot be made or written.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not (self.path.is_file() or self.path.is_dir()):
            raise StoreError(
                f"{self.path}: a device, pipe or socket, where a file was expected; move "
                "it away, or choose another --out"
            )
        with contextlib.ExitStack() as opened:
            opened.enter_context(lock(self.path, wait_seconds))
            with explained(self.path):
                self._connection = sqlite3.connect(self.path, isolation_level=None)
                opened.callback(self._connection.close)
                prepare(self._connection, self.path, fresh=fresh)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        """Returns the open store."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Close the file and release the lock; a second call does nothing."""
        self._opened.close()

    def find(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the result of a finished cell, if the store holds it.

        Args:
            config: The cell's full configuration.

        Returns:
            What was given to `record`; None where there is no row or the cell failed.

        Raises:
            StoreError: The row is damaged.
        """
        cell = self._find(config)
        return None if cell is None else json.loads(cell["payload"])

    def seconds(self, config: Mapping[str, Any]) -> float | None:
        """Returns the wall time a finished cell took.

        Args:
            config: The cell's full configuration.

        Returns:
            Seconds; None where `find` returns None.

        Raises:
            StoreError: The row is damaged.
        """
        cell = self._find(config)
        return None if cell is None else cell["seconds"]

    def record(
        self,
        config: Mapping[str, Any],
        payload: Mapping[str, Any],
        seconds: float,
        origin: Provenance | None = None,
    ) -> None:
        """Write the row of a finished cell; one that is there is replaced.

        Args:
            config: The cell's full configuration; it names its `command` and, where
                they apply, `dtype` and `seed`.
            payload: The result. NaN and infinity become null.
            seconds: Wall time the cell took.
            origin: What produced it, where another process did.

        Raises:
            StoreError: The disk is full or the file is damaged. Rows written before
                stay.
            StoreBusyError: A program that is no client holds the file.
            ValueError: The payload uses the name of one of the row's own columns.
        """
        if taken := payload.keys() & COLUMNS.keys():
            raise ValueError(f"a payload cannot use the names {sorted(taken)}")
        self._write(config, "done", canonical_json(payload), None, seconds, origin)

    def record_failure(
        self,
        config: Mapping[str, Any],
        message: str,
        seconds: float,
        origin: Provenance | None = None,
    ) -> None:
        """Write that a cell failed; `find` does not return such a row.

        Args:
            config: The cell's full configuration.
            message: What went wrong.
            seconds: Wall time until then.
            origin: As for `record`.

        Raises:
            StoreError: As for `record`.
        """
        self._write(config, "failed", None, message, seconds, origin)

    def record_sweep(self, keys: Sequence[str], swept: Sequence[str]) -> None:
        """Write what a sweep consists of: its table is then what `read_store` returns.

        Args:
            keys: Of its cells, in order.
            swept: The names of the swept flags.

        Raises:
            StoreError: As for `record`.
        """
        sweep = {"keys": list(keys), "swept": list(swept)}
        self._write(SWEEP, "done", canonical_json(sweep), None, 0.0, None)

    def table(self) -> Table:
        """Returns a row for each cell; see `read_cells`."""
        with explained(self.path):
            return _cells(_read_rows(self._connection))

    def results(self) -> Table:
        """Returns what `read_store` does."""
        with explained(self.path):
            return _results(_read_rows(self._connection))

    def _find(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the row of a finished cell, by column."""
        with explained(self.path):
            rows = self._connection.execute(
                f"SELECT {', '.join(COLUMNS)} FROM cells WHERE key = ?",
                [cell_key(config)],
            ).fetchall()
        cells = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        return next((cell for cell in cells if cell["status"] == "done"), None)

    def _write(
        self,
        config: Mapping[str, Any],
        status: str,
        payload: str | None,
        message: str | None,
        seconds: float,
        origin: Provenance | None,
    ) -> None:
        origin = origin or provenance()
        row = {
            "key": cell_key(config),
            "command": config["command"],
            "status": status,
            "config": canonical_json(config),
            "payload": payload,
            "message": message,
            "versions": canonical_json(origin.versions),
            "device": origin.device,
            "matmul_precision": origin.matmul_precision,
            "dtype": config.get("dtype"),
            "seed": config.get("seed"),
            "git_commit": origin.git_commit,
            "seconds": float(seconds),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        }
        marks = ", ".join("?" * len(COLUMNS))
        with explained(self.path):
            # A single statement is its own transaction.
            self._connection.execute(
                f"INSERT OR REPLACE INTO cells ({', '.join(COLUMNS)}) VALUES ({marks})",
                [row[name] for name in COLUMNS],
            )


def cell_key(config: Mapping[str, Any]) -> str:
    """Returns the key of a cell: the SHA-256 of its configuration.

    Args:
        config: The full configuration, in JSON types; the order of keys is immaterial.

    Returns:
        64 hexadecimal digits.
    """
    return sha256(canonical_json(config).encode())


def read_store(path: str | os.PathLike[str]) -> Table:
    """Read all results of a store; it may be in use by a run meanwhile.

    Args:
        path: The SQLite file, as in `results/curve/results.sqlite`.

    Returns:
        Of a sweep (`batch`) the table of `batch.csv`: the same columns, rows and order.
        Of every other command a row for each cell in the order of finishing, with the
        columns `key`, `command`, `status` ("done" or "failed"), `message` (of a failure),
        `device`, `matmul_precision`, `dtype`, `seed`, `git_commit`, `seconds`, `finished`
        (UTC), `versions.NAME`, `config.NAME` for the configuration, and the names of the
        result itself.

    Raises:
        InputError: There is no such file.
        StoreError: The file is damaged, is not a result store, or has another schema.
        StoreBusyError: Another program keeps readers out.
    """
    return _results(_read_file(path))


def read_cells(path: str | os.PathLike[str]) -> Table:
    """Read a store as `read_store` does, but a row for each cell of a sweep too."""
    return _cells(_read_file(path))


def _cells(rows: Table) -> Table:
    """Returns the rows of cells."""
    return Table(tuple(row for row in rows if row["command"] != SWEEP["command"]))


def _results(rows: Table) -> Table:
    """Returns the table of the sweep, where the rows are of one."""
    cells = _cells(rows)
    for row in rows:
        if row["command"] == SWEEP["command"]:
            return sweep_table(cells, row["keys"], row["swept"])
    return cells


def _read_file(path: str | os.PathLike[str]) -> Table:
    """Returns all rows of a store that need not be open."""
    try:
        path = expect_file("result store", path)
    except InputError as error:
        raise InputError(
            f"{error}; every command writes one, results.sqlite, in its --out"
        ) from None
    address = path.absolute().as_uri() + "?mode=ro"
    if not os.access(path.parent, os.W_OK) and not log_of(path).exists():
        # SQLite keeps its shared memory beside the file; where it cannot, the file
        # must be declared constant, which it is when no log waits to be merged.
        address += "&immutable=1"
    with explained(path):
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            if not check(connection, path):  # killed before it made the table
                return Table(())
            return _read_rows(connection)


def _read_rows(connection: sqlite3.Connection) -> Table:
    """Returns all rows, flattened."""
    rows = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM cells ORDER BY finished, key"
    )
    return Table(tuple(_flat(dict(zip(COLUMNS, row, strict=True))) for row in rows))


def _flat(cell: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with its JSON columns spread out."""
    row = {
        name: value
        for name, value in cell.items()
        if name not in ("config", "versions", "payload")
    }
    for name in ("config", "versions"):
        for entry, value in json.loads(cell[name]).items():
            row[f"{name}.{entry}"] = value
    return row | json.loads(cell["payload"] or "{}")
