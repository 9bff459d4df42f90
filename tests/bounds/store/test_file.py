"""A file that is damaged, another's, or of another schema is never taken for a store."""

import contextlib
import sqlite3

import pytest

from bounds.store import file as store_file
from bounds.store.file import SCHEMA_VERSION, StoreBusyError, StoreError
from bounds.store.results import ResultStore, cell_key, read_store
from tests.bounds.stores import config, execute


def misled_index(path):
    """Content of a store whose index of keys does not lead to a row."""
    ((root,),) = execute(
        path, "SELECT rootpage FROM sqlite_master WHERE type = 'index'"
    )
    ((size,),) = execute(path, "PRAGMA page_size")
    content = bytearray(path.read_bytes())
    key = cell_key(config(1)).encode()
    last = content.index(key, (root - 1) * size) + len(key) - 1
    assert last < root * size
    content[last] ^= 1
    return bytes(content)


DAMAGES = {
    "text": lambda _: b"not a database, but long enough to be taken for one" * 20,
    "truncated": lambda path: path.read_bytes()[: path.stat().st_size // 2],
    "overwritten": lambda path: (
        path.read_bytes()[:4096] + b"\xff" * 4096 + path.read_bytes()[8192:]
    ),
    "index": misled_index,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(filled, damage):
    filled.write_bytes(DAMAGES[damage](filled))
    for opened in (ResultStore, read_store):
        with pytest.raises(StoreError, match="damaged"):
            opened(filled)


def test_a_store_without_its_table_is_refused(filled):
    execute(filled, "DROP TABLE cells")
    with pytest.raises(StoreError, match=r"is damaged .no such table: cells"):
        read_store(filled)
    with ResultStore(filled) as store, pytest.raises(StoreError, match="is damaged"):
        store.record(config(3), {"influence": 3.1}, seconds=0.5)


def test_a_program_that_holds_the_file_is_named_as_the_reason(filled):
    with ResultStore(filled) as store:
        store._connection.execute("PRAGMA busy_timeout = 1")
        with contextlib.closing(sqlite3.connect(filled, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError, match="another program holds it"):
                store.record(config(3), {"influence": 3.1}, seconds=0.5)
        store.record(config(3), {"influence": 3.1}, seconds=0.5)
        assert len(store.table()) == 4


def test_an_error_of_the_program_while_a_lock_is_held_is_no_damage(path):
    with pytest.raises(ValueError, match="its own"), store_file.lock(path, 0.1):
        raise ValueError("its own")


def test_an_empty_file_is_a_store_without_rows(path):
    path.touch()
    assert len(read_store(path)) == 0
    with ResultStore(path) as store:
        assert len(store.table()) == 0


def test_another_programs_database_is_refused_and_left_alone(path):
    execute(path, "CREATE TABLE birds (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a result store"):
        ResultStore(path)
    assert path.read_bytes() == before


def of_schema(filled, version):
    """Turns a store into one of another schema, whose table lacks a column."""
    execute(filled, "ALTER TABLE cells DROP COLUMN device")
    execute(filled, f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("version", [-1, 1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_schema_is_refused_with_both_versions_and_left_alone(filled, version):
    of_schema(filled, version)
    before, said = (
        filled.read_bytes(),
        f"of schema {version}, .* schema {SCHEMA_VERSION};",
    )
    for opened in (ResultStore, read_store):
        with pytest.raises(
            StoreError, match=said + " .*--fresh, or .*--out"
        ) as refusal:
            opened(filled)
        assert str(refusal.value).startswith(f"{filled}: ")
        assert "\n" not in str(refusal.value)
    assert filled.read_bytes() == before


def test_a_store_of_another_schema_is_begun_anew_when_asked(filled):
    of_schema(filled, SCHEMA_VERSION - 1)
    with ResultStore(filled, fresh=True) as store:
        assert len(store.table()) == 0
        store.record(config(3), {"influence": 3.1}, seconds=0.5)
    with ResultStore(filled, fresh=True) as store:  # of this schema it stays
        assert store.find(config(3)) == {"influence": 3.1}
    assert list(read_store(filled).column("influence")) == [3.1]


def test_a_store_that_cannot_be_begun_anew_keeps_its_rows(filled, monkeypatch):
    of_schema(filled, SCHEMA_VERSION - 1)
    with monkeypatch.context() as broken:
        broken.setattr(store_file, "_TABLE", "CREATE TABLE")
        with pytest.raises(StoreError, match="damaged"):
            ResultStore(filled, fresh=True)
    assert execute(filled, "SELECT count(*) FROM cells") == [(3,)]
