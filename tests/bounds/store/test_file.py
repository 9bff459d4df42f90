"""A file that is damaged, another's, or of another schema is never taken for a store."""

import contextlib
import hashlib
import json
import sqlite3

import pytest

from bounds.store import file as store_file
from bounds.store.results import (
    ResultStore,
    StoreBusyError,
    StoreError,
    cell_key,
    read_store,
)
from tests.bounds.stores import config, fill


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path):
    return fill(path)


def test_a_flipped_byte_in_a_result_is_noticed(filled):
    content = filled.read_bytes()
    assert content.count(b'{"influence":1.1}') == 1
    filled.write_bytes(content.replace(b'{"influence":1.1}', b'{"influence":1.7}'))
    with pytest.raises(StoreError, match="damaged"):
        read_store(filled)
    with ResultStore(filled) as store:
        assert store.find(config(0)) == {"influence": 0.1}
        with pytest.raises(StoreError, match="damaged"):
            store.find(config(1))


@pytest.mark.parametrize("damage", ["text", "truncated", "overwritten"])
def test_a_damaged_file_is_refused(filled, damage):
    content = filled.read_bytes()
    filled.write_bytes(
        {
            "text": b"not a database, but long enough to be taken for one" * 20,
            "truncated": content[: len(content) // 2],
            "overwritten": content[:4096] + b"\xff" * 4096 + content[8192:],
        }[damage]
    )
    with pytest.raises(StoreError, match="damaged"):
        ResultStore(filled)
    with pytest.raises(StoreError, match="damaged"):
        read_store(filled)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE cells",
        "ALTER TABLE cells RENAME TO others",
        "ALTER TABLE cells DROP COLUMN device",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -1",
    ],
)
def test_a_damaged_schema_is_refused(filled, statement):
    with contextlib.closing(sqlite3.connect(filled, isolation_level=None)) as other:
        other.execute(statement)
    with pytest.raises(StoreError, match="damaged"):
        ResultStore(filled)
    with pytest.raises(StoreError, match="damaged"):
        read_store(filled)


def test_an_index_that_does_not_lead_to_its_row_is_refused(filled):
    with contextlib.closing(sqlite3.connect(filled)) as other:
        (root,) = other.execute(
            "SELECT rootpage FROM sqlite_master WHERE type = 'index'"
        ).fetchone()
        (size,) = other.execute("PRAGMA page_size").fetchone()
    content = bytearray(filled.read_bytes())
    key = cell_key(config(1)).encode()
    last = content.index(key, (root - 1) * size) + len(key) - 1
    assert last < root * size
    content[last] ^= 1
    filled.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        ResultStore(filled)
    with pytest.raises(StoreError, match="damaged"):
        read_store(filled)


def test_a_program_that_holds_the_file_is_named_as_the_reason(filled):
    with ResultStore(filled) as store:
        store._connection.execute("PRAGMA busy_timeout = 1")
        with contextlib.closing(sqlite3.connect(filled, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError, match="another program holds it"):
                store.record(config(3), {"influence": 3.1}, seconds=0.5)
        store.record(config(3), {"influence": 3.1}, seconds=0.5)
        assert len(store.table()) == 4


def test_an_empty_file_is_a_store_without_rows(path):
    path.touch()
    assert len(read_store(path)) == 0
    with ResultStore(path) as store:
        assert len(store.table()) == 0


def test_another_programs_database_is_refused_and_left_alone(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE birds (name TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a result store"):
        ResultStore(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(filled):
    connection = sqlite3.connect(filled)
    connection.execute(f"PRAGMA user_version = {store_file.SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(StoreError, match="newer version"):
        ResultStore(filled)


# Of the first schema, in the order of its digests.
FIRST_COLUMNS = (
    *("key", "command", "status", "config", "payload", "message", "versions"),
    *("device", "dtype", "seed", "git_commit", "seconds", "finished"),
)


def written_by_the_first_schema(filled):
    """Turns a store into one of schema 1, its digests written out by hand."""
    connection = sqlite3.connect(filled)
    with connection:
        connection.execute("ALTER TABLE cells DROP COLUMN matmul_precision")
        rows = connection.execute(
            f"SELECT {', '.join(FIRST_COLUMNS)} FROM cells"
        ).fetchall()
        for row in rows:
            text = json.dumps(row, separators=(",", ":"))
            digest = hashlib.sha256(text.encode()).hexdigest()
            connection.execute(
                "UPDATE cells SET digest = ? WHERE key = ?", [digest, row[0]]
            )
        connection.execute("PRAGMA user_version = 1")
    connection.close()


def test_a_store_of_the_first_schema_keeps_its_rows_and_states_no_precision(filled):
    written_by_the_first_schema(filled)
    with pytest.raises(StoreError, match="schema version 1, expected 2"):
        read_store(filled)
    with ResultStore(filled) as store:
        assert store.find(config(2)) == {"influence": 2.1}
        store.record(config(3), {"influence": 3.1}, seconds=0.5)
        precisions = list(store.table().column("matmul_precision"))
    assert precisions == [None, None, None, "highest"]


def test_a_migration_leaves_a_damaged_row_damaged(filled):
    written_by_the_first_schema(filled)
    connection = sqlite3.connect(filled)
    with connection:
        connection.execute("UPDATE cells SET seconds = 7 WHERE seed = 7")
    connection.close()
    with ResultStore(filled) as store, pytest.raises(StoreError, match="digest"):
        store.find(config(1))


def test_an_older_schema_migrates_and_keeps_its_rows(filled, monkeypatch):
    version = store_file.SCHEMA_VERSION

    def add_note(connection):
        connection.execute("ALTER TABLE cells ADD COLUMN note TEXT")

    monkeypatch.setattr(store_file, "SCHEMA_VERSION", version + 1)
    monkeypatch.setitem(store_file.MIGRATIONS, version, add_note)
    with ResultStore(filled) as store:
        assert store.find(config(2)) == {"influence": 2.1}
    connection = sqlite3.connect(filled)
    names = [row[1] for row in connection.execute("PRAGMA table_info(cells)")]
    assert "note" in names
    assert connection.execute("PRAGMA user_version").fetchone() == (version + 1,)
    connection.close()


def test_a_failed_migration_changes_nothing(filled, monkeypatch):
    version = store_file.SCHEMA_VERSION

    def half_a_step(connection):
        connection.execute("ALTER TABLE cells ADD COLUMN note TEXT")
        raise sqlite3.OperationalError("interrupted")

    with monkeypatch.context() as newer:
        newer.setattr(store_file, "SCHEMA_VERSION", version + 1)
        newer.setitem(store_file.MIGRATIONS, version, half_a_step)
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            ResultStore(filled)
    assert len(read_store(filled)) == 3
