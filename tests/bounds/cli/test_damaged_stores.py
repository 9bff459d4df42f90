"""A damaged store: rows that are no JSON or lack keys, and stores of earlier schemas.

Each command that keeps results runs once, and the same command reads them; then one row is
damaged: the command ends as it would, or with one line that names the file.
"""

import contextlib
import json
import shutil

import pytest

from bounds.cli.shared.runner import RECORDS
from bounds.store.file import SCHEMA_VERSION, StoreError
from bounds.store.results import read_store
from tests.bounds.cli.outputs import HEAD, RUNS, read_json
from tests.bounds.stores import execute

STORE, OWN = "out/results.sqlite", "own/results.sqlite"
NO_OBJECTS = ["{", "", "null", "[]", '"text"', "\0", "[" * 9999, "9" * 5000]
MOST_KEYS = 2  # of a row, that are left out one by one


def damage(key, text):
    """Puts a copy of a command's store in place, with another text as one row's result."""
    shutil.rmtree("out", ignore_errors=True)
    shutil.copytree("own", "out")
    changed = "UPDATE cells SET payload = CAST(? AS TEXT) WHERE key = ?"
    execute(STORE, changed, [text, key])


def lacking(row):
    """Copies of a row without one of its keys, or of those of the first in a list of rows."""
    for name in list(row)[:MOST_KEYS]:
        yield {key: value for key, value in row.items() if key != name}
    match row:
        case {"rows": [dict() as one, *others]}:
            yield from ({**row, "rows": [other, *others]} for other in lacking(one))


@pytest.mark.parametrize("command", RUNS)
def test_a_damaged_row_is_one_line_or_a_result(run, command, monkeypatch):
    assert run(command, *RUNS[command], "--out=own").code == 0
    record = f"own/{RECORDS.get(command, f'{command}.json')}"
    first = read_json(record)
    assert set(HEAD) <= first.keys()
    named = "entropy" if command == "batch" else command  # which a sweep runs
    assert (first["command"], first["flags"]["out"]) == (named, "own")
    assert first["seed"] in (None, first["flags"]["seed"])
    with monkeypatch.context() as patch:
        again = lambda _: pytest.fail("computed again")
        patch.setattr("bounds.store.sweep.compute", again)
        assert run(command, *RUNS[command], "--out=own").code == 0
    assert first | {"seconds": 0} == read_json(record) | {"seconds": 0}
    (key, text), *_ = execute(OWN, "SELECT key, payload FROM cells")
    row = json.loads(text)
    for other in (*NO_OBJECTS[:2], *map(json.dumps, ({}, *lacking(row)))):
        damage(key, other)
        ended = run(command, *RUNS[command], "--out=out")
        if ended.code:
            ended.assert_refused(f"{STORE}: ")
            assert "a row of the store is damaged (" in ended.err, other
            assert "--fresh" in ended.err, other
        with contextlib.suppress(StoreError):
            read_store(STORE)
        assert ended.code or other not in NO_OBJECTS
    damage(key, "{")
    assert run(command, *RUNS[command], "--out=out", "--fresh").code == 0


@pytest.mark.parametrize("text", [*NO_OBJECTS, b"\xff\x22", None])
def test_a_row_that_is_no_object_or_lacks_a_key_is_named(run, text):
    assert run("entropy", *RUNS["entropy"], "--out=own").code == 0
    (key, whole), *_ = execute(OWN, "SELECT key, payload FROM cells")
    row = json.loads(whole)
    del row["n"]
    said = f"row '{key}': " if text is not None else "it lacks 'n'"
    damage(key, json.dumps(row) if text is None else text)
    ended = run("entropy", *RUNS["entropy"], "--out=out")
    ended.assert_refused(f"{STORE}: a row of the store is damaged ({said}")
    assert "); run its command with --fresh" in ended.err
    if text is not None:
        assert "is no JSON object)" in ended.err
        with pytest.raises(StoreError, match="is no JSON object"):
            read_store(STORE)
    assert run("entropy", *RUNS["entropy"], "--out=out", "--fresh").code == 0


def test_an_error_over_results_of_the_run_itself_is_no_damage(run, monkeypatch):
    def export(*_):
        raise KeyError("a mistake of the program")

    monkeypatch.setattr("bounds.cli.entropy.entropy_report", export)
    with pytest.raises(KeyError, match="a mistake"):
        run("entropy", *RUNS["entropy"], "--out=new")


def test_a_store_of_an_earlier_schema_is_refused_until_it_is_begun_anew(run):
    for command in ("entropy", "batch"):
        arguments = [*RUNS[command], "--out=out"]
        assert run(command, *arguments).code == 0
        execute(STORE, f"PRAGMA user_version = {SCHEMA_VERSION - 1}")
        for more in ([], ["--dry_run"] if command == "batch" else []):
            ended = run(command, *arguments, *more)
            ended.assert_refused(f"{STORE}: a store of schema {SCHEMA_VERSION - 1}, ")
            assert (
                f"has schema {SCHEMA_VERSION}; begin it anew with --fresh" in ended.err
            )
        assert run(command, *arguments, "--fresh").code == 0
        assert run(command, *arguments).code == 0
        shutil.rmtree("out")
