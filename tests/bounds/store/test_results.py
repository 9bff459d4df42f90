"""The result store keeps what was written, whole, whatever happens to the writer."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from bounds.store.file import StoreBusyError
from bounds.store.results import ResultStore, cell_key, read_store
from jax_models import InputError
from tests.bounds.stores import CONFIG, config


def test_a_recorded_result_is_found_by_its_configuration_alone(path):
    payload = {"influence": 0.1, "position": 3, "exact": True, "ties": None}
    with ResultStore(path) as store:
        assert store.find(CONFIG) is None
        assert store.seconds(CONFIG) == 0.0
        store.record(CONFIG, payload, seconds=1.25)
    with ResultStore(path) as store:
        assert store.find(dict(reversed(CONFIG.items()))) == payload
        assert store.seconds(CONFIG) == 1.25
        for name, other in [("length", 17), ("dtype", "float32"), ("seed", 8)]:
            assert store.find({**CONFIG, name: other}) is None


def test_an_integer_and_a_float_of_the_same_value_are_different_configurations():
    assert cell_key({"temperature": 1}) != cell_key({"temperature": 1.0})
    assert cell_key({"lengths": np.arange(3)}) == cell_key({"lengths": [0, 1, 2]})


def test_a_failure_is_kept_with_its_message_and_is_no_result(path):
    with ResultStore(path) as store:
        # The name of a file that is no text.
        store.record(CONFIG, None, seconds=0.1, message="t\udcff.txt: no input")
        assert store.find(CONFIG) is None
        (row,) = store.table()
        assert row["status"] == "failed"
        assert row["message"] == store.failure(CONFIG) == r"t\udcff.txt: no input"


def test_what_a_sweep_consists_of_is_no_part_of_its_work(path):
    with ResultStore(path) as store:
        store.record_sweep(["one", "two"], ["seed"])
        assert len(store.table()) == 0
    assert len(read_store(path)) == 0


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


def test_one_client_at_a_time_by_whatever_name(filled, tmp_path):
    link = tmp_path / "link.sqlite"
    link.symlink_to(filled)
    for one, other in ((filled, filled), (filled, link), (link, filled)):
        with ResultStore(one) as first:
            with pytest.raises(StoreBusyError, match="in use by another run"):
                ResultStore(other, wait_seconds=0.1)
            first.record(config(3), {"influence": 3.1}, seconds=0.5)
            assert len(read_store(filled)) == 4  # may be read meanwhile
    with ResultStore(link, wait_seconds=0.1) as second:
        assert second.find(config(3)) == {"influence": 3.1}


def run_python(code, path):
    """A process of a program that is given the path of a store."""
    words = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, **pipes, text=True)


def test_every_reported_row_survives_kill_9(path):
    writer = run_python(
        """
        import itertools, sys
        from bounds.store.results import ResultStore
        with ResultStore(sys.argv[1]) as store:
            for index in itertools.count():
                store.record({"command": "curve", "input": index}, {"x": index}, 0.0)
                print(index, flush=True)
        """,
        path,
    )
    assert writer.stdout is not None
    first = [int(writer.stdout.readline()) for _ in range(20)]
    with pytest.raises(StoreBusyError):
        ResultStore(path, wait_seconds=0.1)
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    reported = [*first, *map(int, rest.split())]
    table = read_store(path)
    written = list(table.column("x"))
    assert written == list(range(len(written)))
    # The row after the last reported one may or may not have been finished.
    assert len(written) - 1 - reported[-1] in (0, 1)
    # What that process held is free.
    with ResultStore(path, wait_seconds=0.1) as store:
        assert len(store.table()) == len(written)


def test_a_full_disk_is_a_clear_error_that_loses_nothing(filled):
    # A limit on the size of files meets SQLite as a disk that has no room left.
    writer = run_python(
        """
        import pathlib, resource, sys
        from bounds.store.file import StoreError
        from bounds.store.results import ResultStore
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


def test_a_missing_store_cannot_be_read(path):
    with pytest.raises(InputError, match=r"results\.sqlite' does not exist; every"):
        read_store(path)
    assert not path.exists()
