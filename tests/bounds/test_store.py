"""The result store keeps what was written, whole, whatever happens to the writer."""

import contextlib
import hashlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from bounds import store_file
from bounds.store import (
    ResultStore,
    StoreBusyError,
    StoreError,
    cell_key,
    read_store,
)

CONFIG = {"command": "curve", "length": 16, "dtype": "float64", "seed": 7}


def config(index):
    return {**CONFIG, "input": index}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path):
    with ResultStore(path) as store:
        for index in range(3):
            store.record(config(index), {"influence": 0.1 + index}, seconds=0.5)
    return path


def run_python(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_recorded_result_is_found_by_its_configuration_alone(path):
    payload = {"influence": 0.1, "position": 3, "exact": True, "ties": None}
    with ResultStore(path) as store:
        assert store.find(CONFIG) is None
        assert store.seconds(CONFIG) is None
        store.record(CONFIG, payload, seconds=1.25)
    with ResultStore(path) as store:
        assert store.find(dict(reversed(CONFIG.items()))) == payload
        assert store.seconds(CONFIG) == 1.25
        for name, other in [("length", 17), ("dtype", "float32"), ("seed", 8)]:
            assert store.find({**CONFIG, name: other}) is None


def test_an_integer_and_a_float_of_the_same_value_are_different_configurations():
    assert cell_key({"temperature": 1}) != cell_key({"temperature": 1.0})
    assert cell_key({"lengths": np.arange(3)}) == cell_key({"lengths": [0, 1, 2]})


def test_every_float_comes_back_to_the_last_bit(path):
    values = [0.1, 1 / 3, math.pi * 1e-300, np.nextafter(1.0, 2.0), 5e-324]
    with ResultStore(path) as store:
        store.record(CONFIG, {"values": values}, seconds=0.0)
        found = store.find(CONFIG)
    assert found is not None
    assert found["values"] == values


def test_nan_and_infinity_become_null(path):
    with ResultStore(path) as store:
        store.record(CONFIG, {"a": math.nan, "b": [math.inf, 1.0]}, seconds=0.0)
        assert store.find(CONFIG) == {"a": None, "b": [None, 1.0]}


def test_a_second_record_replaces_the_first(path):
    with ResultStore(path) as store:
        store.record(CONFIG, {"influence": 1.0}, seconds=0.0)
        store.record(CONFIG, {"influence": 2.0}, seconds=0.0)
        assert store.find(CONFIG) == {"influence": 2.0}
        assert len(store.table()) == 1


def test_a_failure_is_kept_with_its_message_and_is_no_result(path):
    with ResultStore(path) as store:
        store.record_failure(CONFIG, "row 3 is ambiguous", seconds=0.1)
        assert store.find(CONFIG) is None
        (row,) = store.table()
    assert (row["status"], row["message"]) == ("failed", "row 3 is ambiguous")


def test_a_payload_cannot_shadow_a_column_of_the_row(path):
    with ResultStore(path) as store, pytest.raises(ValueError, match="seconds"):
        store.record(CONFIG, {"seconds": 1.0}, seconds=0.0)


def test_the_table_holds_configuration_result_and_provenance(filled):
    table = read_store(filled)
    assert list(table.column("influence")) == [0.1, 1.1, 2.1]
    assert list(table.column("config.input")) == [0, 1, 2]
    assert set(table.column("seed")) == {7}
    assert set(table.column("dtype")) == {"float64"}
    assert set(table.column("status")) == {"done"}
    assert all(table.column("seconds") == 0.5)
    assert set(table.column("matmul_precision")) == {"highest"}
    assert {"versions.jax", "versions.attention-bounds", "device", "git_commit"} <= set(
        table.columns
    )


def test_a_store_in_a_folder_that_cannot_be_written_can_be_read(filled, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert len(read_store(filled)) == 3
    assert not list(filled.parent.glob("*-shm"))


def test_a_store_can_be_read_while_a_client_writes(filled):
    with ResultStore(filled) as store:
        store.record(config(3), {"influence": 3.1}, seconds=0.5)
        assert len(read_store(filled)) == 4


def test_a_second_client_is_refused_and_let_in_afterwards(filled):
    with ResultStore(filled) as first:
        with pytest.raises(StoreBusyError, match="in use by another run"):
            ResultStore(filled, wait_seconds=0.1)
        first.record(config(3), {"influence": 3.1}, seconds=0.5)
    with ResultStore(filled, wait_seconds=0.1) as second:
        assert second.find(config(3)) == {"influence": 3.1}


def test_a_client_in_another_process_is_refused_until_that_process_is_killed(filled):
    holder = run_python(
        """
        import sys, time
        from bounds.store import ResultStore
        store = ResultStore(sys.argv[1])
        print("open", flush=True)
        time.sleep(600)
        """,
        filled,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreBusyError):
            ResultStore(filled, wait_seconds=0.1)
    finally:
        holder.kill()
        holder.communicate()
    with ResultStore(filled, wait_seconds=0.1) as store:
        assert len(store.table()) == 3


def test_every_reported_row_survives_kill_9(path):
    writer = run_python(
        """
        import itertools, sys
        from bounds.store import ResultStore
        with ResultStore(sys.argv[1]) as store:
            for index in itertools.count():
                store.record({"command": "curve", "input": index}, {"x": index}, 0.0)
                print(index, flush=True)
        """,
        path,
    )
    assert writer.stdout is not None
    first = [int(writer.stdout.readline()) for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    reported = [*first, *map(int, rest.split())]
    table = read_store(path)
    written = list(table.column("x"))
    assert written == list(range(len(written)))
    # The row after the last reported one may or may not have been finished.
    assert len(written) - 1 - reported[-1] in (0, 1)


def test_a_full_disk_is_a_clear_error_that_loses_nothing(filled):
    # A limit on the size of files meets SQLite as a disk that has no room left.
    writer = run_python(
        """
        import pathlib, resource, sys
        from bounds.store import ResultStore, StoreError
        size = pathlib.Path(sys.argv[1]).stat().st_size
        with ResultStore(sys.argv[1]) as store:
            store.record({"command": "curve", "input": 3}, {"influence": 3.1}, 0.5)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            try:
                store.record({"command": "curve", "input": 4}, {"x": "y" * size}, 0.5)
            except StoreError as error:
                print(error)
        """,
        filled,
    )
    said, problems = writer.communicate(timeout=60)
    assert "make room on the disk" in said, problems
    assert list(read_store(filled).column("influence")) == [0.1, 1.1, 2.1, 3.1]


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


def test_a_missing_store_cannot_be_read(path):
    with pytest.raises(FileNotFoundError):
        read_store(path)
    assert not path.exists()


def test_a_folder_that_cannot_be_made_is_an_operating_system_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        ResultStore(tmp_path / "file" / "results.sqlite")
