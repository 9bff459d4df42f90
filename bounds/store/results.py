"""The result store: one SQLite file, one row per finished cell.

A cell is one computation. Its configuration is a mapping of all that the result depends
on; the key of its row is the SHA-256 of the configuration as canonical JSON. Each row
is its own transaction: a run that is killed loses at most the cell under way. One
client at a time writes; others may read. A sweep (`batch`) is a set of cells: runs of one
command that differ in some flags.
"""

import contextlib
import datetime
import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bounds.store import file
from bounds.store.output import canonical_json, sha256
from bounds.store.provenance import provenance
from bounds.store.table import Table, sweep_table
from jax_models.arguments import expect_file, show
from jax_models.errors import InputError

# The name of a run's store.
STORE_NAME = "results.sqlite"
# The configuration of the one row that is no cell: what the store's sweep consists of.
SWEEP = {"command": "batch", "cell": "sweep"}


class ResultStore(contextlib.AbstractContextManager["ResultStore"]):
    """The rows of one store, open for one writing client until the context is left."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wait_seconds: float = 5.0,
        fresh: bool = False,
    ):
        """Open a store; `fresh` makes one in place of another schema's."""
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file.refuse_special_file(self.path)
        with contextlib.ExitStack() as opened:
            opened.enter_context(file.lock(self.path, wait_seconds))
            with file.explained(self.path):
                self._connection = sqlite3.connect(self.path, isolation_level=None)
                opened.callback(self._connection.close)
                file.prepare(self._connection, self.path, fresh=fresh)
            self._opened = opened.pop_all()

    def __exit__(self, *exception: object) -> None:
        """Close the file and release the lock."""
        self._opened.close()

    def find(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Result of a finished cell, or None; a `StoreError` if it is no JSON object."""
        found = self._find("payload", config)
        with file.explained(self.path):
            return None if found is None else _decode(cell_key(config), found)

    def seconds(self, config: Mapping[str, Any]) -> float:
        """Returns the wall time of a finished cell in seconds, or 0 without one."""
        return self._find("seconds", config) or 0.0

    def failure(self, config: Mapping[str, Any]) -> str | None:
        """Message of a failed cell, or None if no such cell failed."""
        return self._find("message", config, "failed")

    def record_sweep(self, keys: Sequence[str], swept: Sequence[str]) -> None:
        """Write keys of a sweep's cells and names of its flags, for `read_store`."""
        self.record(SWEEP, {"keys": list(keys), "swept": list(swept)}, 0.0)

    def table(self) -> Table:
        """Returns a row for each cell: its key, status, configuration, result."""
        with file.explained(self.path):
            return _read_rows(self._connection)

    def _find(
        self, column: str, config: Mapping[str, Any], status: str = "done"
    ) -> Any:
        """Returns a column of a cell's row; None without a row of status `status`."""
        query = f"SELECT {column} FROM cells WHERE key = ? AND status = ?"
        with file.explained(self.path):
            row = self._connection.execute(query, [cell_key(config), status]).fetchone()
        return row and row[0]

    def record(
        self,
        config: Mapping[str, Any],
        payload: Mapping[str, Any] | None,
        seconds: float,
        origin: Mapping[str, Any] | None = None,
        message: str | None = None,
    ) -> None:
        """Writes a cell's row: its result, NaN as null, or a failure's `message`."""
        if payload and (taken := payload.keys() & file.COLUMNS.keys()):
            raise ValueError(f"a payload cannot use the names {sorted(taken)}")
        origin = origin or provenance()
        if message is not None:  # bytes of a file name that are no UTF-8 become escapes
            message = message.encode(errors="backslashreplace").decode()
        row = {
            "key": cell_key(config),
            "command": config["command"],
            "status": "failed" if payload is None else "done",
            "config": canonical_json(config),
            "payload": None if payload is None else canonical_json(payload),
            "message": message,
            **origin,
            "versions": canonical_json(origin["versions"]),
            "dtype": config.get("dtype"),
            "seed": config.get("seed"),
            "seconds": float(seconds),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        }
        values = ", ".join(f":{name}" for name in row)
        with file.explained(self.path):
            # A single statement is its own transaction.
            self._connection.execute(
                f"INSERT OR REPLACE INTO cells ({', '.join(row)}) VALUES ({values})",
                row,
            )


class MemoryResults(ResultStore):
    """A result store in memory, with the same methods as one in a file."""

    def __init__(self) -> None:
        """Opens an empty store."""
        self.path = Path(":memory:")
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._opened = contextlib.ExitStack()
        self._opened.callback(weakref.finalize(self, self._connection.close))
        file.prepare(self._connection, self.path, fresh=False)


def cell_key(config: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a cell's configuration, whatever the order of its keys."""
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
    return _read_file(path, _results)


def read_cells(
    path: str | os.PathLike[str], keys: Collection[str] | None = None
) -> Table:
    """Read a row for each cell of a store, sweeps included, or for the cells `keys`."""
    return _read_file(path, lambda connection: _read_rows(connection, keys))


def _results(connection: sqlite3.Connection) -> Table:
    """Returns the table of the recorded sweep, or without one a row for each cell."""
    query = "SELECT payload FROM cells WHERE key = ?"
    sweep = connection.execute(query, [cell_key(SWEEP)]).fetchone()
    if sweep is None:
        return _read_rows(connection)
    told = _decode(cell_key(SWEEP), sweep[0])
    return sweep_table(_read_rows(connection, told["keys"]), **told)


def _read_file(
    path: str | os.PathLike[str], read: Callable[[sqlite3.Connection], Table]
) -> Table:
    """Table that `read` makes of a store, opened read-only; empty for an empty file."""
    try:
        path = expect_file("result store", path)
    except InputError as error:
        raise InputError(
            f"{error}; every command writes one, results.sqlite, in its --out"
        ) from None
    address = path.absolute().as_uri() + "?mode=ro"
    log = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not log.exists():
        # SQLite keeps its shared memory beside the file; where it cannot, the file
        # must be declared constant, which it is when no log waits to be merged.
        address += "&immutable=1"
    with file.explained(path):
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            # The run may have been killed before it made the table.
            return read(connection) if file.check(connection, path) else Table(())


def _read_rows(
    connection: sqlite3.Connection, keys: Collection[str] | None = None
) -> Table:
    """Returns the rows of all cells, or of `keys`, with columns of JSON spread out."""
    # A damaged row of another sweep does not matter.
    rows = connection.execute(
        f"SELECT {', '.join(file.COLUMNS)} FROM cells WHERE key <> ? ORDER BY finished, key",
        [cell_key(SWEEP)],
    )
    cells = (dict(zip(file.COLUMNS, row, strict=True)) for row in rows)
    wanted = None if keys is None else frozenset(keys)
    return Table(tuple(_flat(x) for x in cells if wanted is None or x["key"] in wanted))


def _flat(cell: dict[str, Any]) -> dict[str, Any]:
    """Returns a cell's row, JSON columns spread out; a result's equal names are dropped."""
    texts = (cell.pop(name) for name in ("config", "versions", "payload"))
    config, versions, found = (
        {} if text is None else _decode(cell["key"], text) for text in texts
    )
    row = cell | {f"config.{name}": value for name, value in config.items()}
    row |= {f"versions.{name}": value for name, value in versions.items()}
    return {**row, **found, **row}


def _decode(key: str, text: str) -> dict[str, Any]:
    """Object that JSON text in the row of `key` holds; `ValueError` for other text."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), dict):
            return found
    raise ValueError(f"row {show(key)}: {show(text)} is no JSON object")
