"""The file under a result store: its lock, its schema, and what its errors mean."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

SCHEMA_VERSION = 3
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
}


class StoreError(OSError):
    """A result store cannot be used: damaged, foreign, of another schema, or out of space."""


class StoreBusyError(StoreError):
    """Another client is writing the same store."""


def prepare(connection: sqlite3.Connection, path: Path, *, fresh: bool) -> None:
    """Check a file, and make the table in a new one or in place of another schema's."""
    version = check(connection, path, fresh=fresh)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if version == SCHEMA_VERSION:
        return
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back where a step fails
        connection.execute("DROP TABLE IF EXISTS cells")
        connection.execute(f"CREATE TABLE cells ({columns})")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def check(connection: sqlite3.Connection, path: Path, *, fresh: bool = False) -> int:
    """Returns the schema version of a sound store, 0 for an empty file.

    With `fresh` it may be another than this program's.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{path}: an SQLite file, but not a result store of ours")
    if version < 0 or bool(version) != bool(tables):
        raise damaged(
            path, f"schema version {version} with {tables} tables and indices"
        )
    if version not in (0, SCHEMA_VERSION) and not fresh:
        raise StoreError(
            f"{path}: a store of schema {version}, and this program has schema "
            f"{SCHEMA_VERSION}; begin it anew with --fresh, or choose another --out"
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
