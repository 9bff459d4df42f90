"""The file under a result store: its lock, its schema, and what its errors mean."""

import contextlib
import functools
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bounds.store.output import canonical_json, sha256

SCHEMA_VERSION = 2
# Marks the file as ours among SQLite files ("ABND").
APPLICATION_ID = 0x41424E44

COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "command": "TEXT NOT NULL",
    "status": "TEXT NOT NULL CHECK (status IN ('done', 'failed'))",
    "config": "TEXT NOT NULL",
    "payload": "TEXT",
    "message": "TEXT",
    "versions": "TEXT NOT NULL",
    "device": "TEXT NOT NULL",
    "matmul_precision": "TEXT",
    "dtype": "TEXT",
    "seed": "INTEGER",
    "git_commit": "TEXT",
    "seconds": "REAL NOT NULL",
    "finished": "TEXT NOT NULL",
    "digest": "TEXT NOT NULL",
}

# Columns that a schema version added; rows written before hold null there.
ADDED = {2: ("matmul_precision",)}


def columns_of(version: int) -> tuple[str, ...]:
    """Returns the columns of a schema version, in the order of its digests."""
    later = {name for v, names in ADDED.items() if v > version for name in names}
    return tuple(name for name in COLUMNS if name not in later)


def row_digest(cell: Mapping[str, Any], version: int) -> str:
    """Returns the SHA-256 of a row's content; SQLite itself keeps no checksums."""
    names = columns_of(version)
    content = [cell[name] for name in names if name != "digest"]
    return sha256(canonical_json(content).encode())


def _add_columns(connection: sqlite3.Connection, version: int) -> None:
    """Add the columns of the next version, and write its digests of the sound rows."""
    names = columns_of(version)
    rows = connection.execute(f"SELECT {', '.join(names)} FROM cells").fetchall()
    for name in ADDED[version + 1]:
        connection.execute(f"ALTER TABLE cells ADD COLUMN {name} {COLUMNS[name]}")
    for row in rows:
        cell = dict(zip(names, row, strict=True))
        if cell["digest"] != row_digest(cell, version):
            continue  # it stays damaged
        cell |= dict.fromkeys(ADDED[version + 1])
        connection.execute(
            "UPDATE cells SET digest = ? WHERE key = ?",
            [row_digest(cell, version + 1), cell["key"]],
        )


# What turns a file of schema version k into one of version k + 1, by k.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {
    version - 1: functools.partial(_add_columns, version=version - 1)
    for version in ADDED
}


class StoreError(OSError):
    """A result store cannot be used: damaged, foreign, too new, or out of space."""


class StoreBusyError(StoreError):
    """Another client is writing the same store."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check a file and bring its schema up to date, making the table in a new one."""
    version = check(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back where a step fails
        if version == 0:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            connection.execute(f"CREATE TABLE cells ({columns})")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        else:
            for step in range(version, SCHEMA_VERSION):
                MIGRATIONS[step](connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def check(connection: sqlite3.Connection, path: Path) -> int:
    """Returns the schema version of a sound store, 0 for an empty file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{path}: an SQLite file, but not a result store of ours")
    if version < 0 or bool(version) != bool(tables):
        raise damaged(
            path, f"schema version {version} with {tables} tables and indices"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: written by a newer version of this program (schema {version}, "
            f"this one knows {SCHEMA_VERSION}); update, or choose another --out"
        )
    # Not quick_check, which leaves out whether the index of the keys leads to the rows.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise damaged(path, verdict)
    if version == SCHEMA_VERSION:
        present = {row[1] for row in connection.execute("PRAGMA table_info(cells)")}
        if lacking := sorted(COLUMNS.keys() - present):
            raise damaged(path, f"the table of cells has no column {lacking[0]!r}")
    return version


def damaged(path: Path, verdict: str) -> StoreError:
    """Returns the error for a store whose content is not what was written."""
    return StoreError(
        f"{path}: the store is damaged ({verdict}); restore a copy, or move it away "
        "to compute its results again"
    )


def log_of(path: Path) -> Path:
    """Returns where SQLite keeps the write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


@contextlib.contextmanager
def lock(path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the right to write a store.

    The lock is SQLite's exclusive lock on an empty file beside the store: portable,
    and released by the system when the process dies. Not on the store itself, which
    would shut out readers.
    """
    with contextlib.suppress(FileNotFoundError):
        os.stat(path)  # refuses a link that leads back to itself
    # A link leads to the file that its other names lead to.
    target = path.resolve()
    beside = target.with_name(target.name + ".lock")
    with explained(beside):
        with contextlib.closing(
            sqlite3.connect(beside, isolation_level=None, timeout=wait_seconds)
        ) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                raise StoreBusyError(
                    f"{path}: in use by another run (waited {wait_seconds:g} s); let "
                    "it finish, or choose another --out"
                ) from error
            yield


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind; the rest details it.
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise damaged(path, str(error)) from error
        if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise StoreError(
                f"{path}: cannot write ({error}); make room on the disk and run the "
                "same command again, finished results are kept"
            ) from error
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusyError(
                f"{path}: another program holds it ({error}); close that, and run the "
                "same command again, finished results are kept"
            ) from error
        if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise StoreError(
                f"{path}: cannot be opened for writing ({error}); check its folder's "
                "permissions, or choose another --out"
            ) from error
        raise
