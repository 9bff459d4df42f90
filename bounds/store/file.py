"""The SQLite file of a result store: its lock, its table, and errors with advice."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from jax_models.errors import InputError

SCHEMA_VERSION = 3
# Marks the file as ours among SQLite files ("ABND").
APPLICATION_ID = 0x41424E44

COLUMNS = {
    "key": "TEXT PRIMARY KEY NOT NULL",
    "command": "TEXT NOT NULL",
    "status": "TEXT NOT NULL",
    "config": "TEXT NOT NULL",
    "payload": "TEXT",
    "message": "TEXT",
    "versions": "TEXT NOT NULL",
    "device": "TEXT NOT NULL",
    "matmul_precision": "TEXT NOT NULL",
    "dtype": "TEXT",
    "seed": "INTEGER",
    "git_commit": "TEXT",
    "seconds": "REAL NOT NULL",
    "finished": "TEXT NOT NULL",
}
_TABLE = f"CREATE TABLE cells ({', '.join(map(' '.join, COLUMNS.items()))})"


class StoreError(OSError):
    """A result store cannot be used: damaged, foreign, of another schema, or out of space."""


class StoreBusyError(StoreError):
    """Another program writes to the same store, or keeps readers out."""


def prepare(connection: sqlite3.Connection, path: Path, *, fresh: bool) -> None:
    """Checks a store's file, makes its table; if `fresh`, replaces one of another schema."""
    version = check(connection, path, fresh=fresh)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back where a step fails
        connection.execute("DROP TABLE IF EXISTS cells")
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def check(connection: sqlite3.Connection, path: Path, *, fresh: bool = False) -> int:
    """Schema version of a sound store, 0 of an empty file; if `fresh`, any version passes."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.text_factory = lambda text: text.decode(errors="replace")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (entries,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or entries):
        raise StoreError(f"{path}: an SQLite file, but not a result store of ours")
    if version not in (0, SCHEMA_VERSION):
        if fresh:
            return version
        raise StoreError(
            f"{path}: a store of schema {version}, and this program has schema "
            f"{SCHEMA_VERSION}; begin it anew with --fresh, or choose another --out"
        )
    # Not quick_check, which leaves out whether the index of the keys leads to the rows.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(path, verdict)
    return version


def _damaged(path: Path, verdict: str) -> StoreError:
    return StoreError(
        f"{path}: the store is damaged ({verdict}); restore a copy, or move it away "
        "to compute its results again"
    )


def refuse_special_file(path: Path) -> None:
    """Raises `StoreError` if the path is a folder, device, pipe or socket."""
    if path.exists() and not path.is_file():
        what = "folder" if path.is_dir() else "device, pipe or socket"
        raise StoreError(
            f"{path}: a {what}, where a file was expected; move it away, or choose "
            "another --out"
        )


@contextlib.contextmanager
def lock(path: Path, wait_seconds: float) -> Iterator[None]:
    """Holds the sole right to write a store; `StoreBusyError` after `wait_seconds`."""
    # SQLite's exclusive lock on an empty file beside the store: portable, and released when
    # the process dies. Not on the store itself, which would shut out readers.
    with contextlib.suppress(FileNotFoundError):
        os.stat(path)  # refuses a link that leads back to itself
    # A link leads to the file that its other names lead to.
    target = path.resolve()
    beside = target.with_name(target.name + ".lock")
    refuse_special_file(beside)
    with contextlib.ExitStack() as opened:
        with explained(beside):
            connection = sqlite3.connect(
                beside, isolation_level=None, timeout=wait_seconds
            )
            opened.callback(connection.close)
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
    """Turns errors of SQLite and of damaged rows in `path` into a `StoreError`."""
    try:
        yield
    except InputError:
        raise
    # Over a row that was changed, or that lacks what is read.
    except (LookupError, TypeError, ValueError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(
            f"{path}: a row of the store is damaged ({why}); run its command with --fresh "
            "to compute it again, or choose another --out"
        ) from error
    except sqlite3.Error as error:
        kind, again = (
            StoreError,
            "run the same command again, finished results are kept",
        )
        # The low byte is the kind; the rest details it.
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            # Sound statements fail where the table is not that of a store.
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
                raise _damaged(path, str(error)) from error
            case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
                told = f"cannot write ({error}); make room on the disk and {again}"
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                kind = StoreBusyError
                told = f"another program holds it ({error}); close that, and {again}"
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
                told = f"cannot be opened for writing ({error}); check its folder's "
                told += "permissions, or choose another --out"
            case _:
                raise
        raise kind(f"{path}: {told}") from error
