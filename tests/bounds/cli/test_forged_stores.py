"""A store from a stranger is read as JSON of a known form, and its file runs nothing.

Each command that keeps results runs once, and the same command reads them; then one place
of one row is forged: it ends as it would, or with one line that names row and file.
"""

import contextlib
import json
import random
import re
import shutil
import sqlite3

import pytest

from bounds.cli.shared.runner import RECORDS
from bounds.store.file import SCHEMA_VERSION
from bounds.store.results import ResultStore, StoreError, read_store
from tests.bounds.cli.outputs import RUNS, read_json

STORE = "out/results.sqlite"
FORGERIES = 8
LEAVES = [
    *("null", "true", "-1", "2", "1.5", "1e999", "-1e999", "NaN", "Infinity", "-0.0"),
    *("9" * 400, "9" * 5000, str(2**63), "1e30", '"text"', '"\\ud800"', '"nan"'),
    *("[]", "{}", "[" * 40 + "]" * 40, "[" * 400 + "]" * 400, "[" * 9999, "[[[null]]]"),
    *('{"":[]}', "[1,2,3]"),
]
WHOLE = ["{", "", "null", "[]", '{"a":1}', '{"key":1}', '{"status":"x"}', "\0", "é"]


def places(value, at=()):
    """Every place within a JSON value."""
    yield at
    entries = enumerate(value) if isinstance(value, list) else ()
    for name, entry in value.items() if isinstance(value, dict) else entries:
        yield from places(entry, (*at, name))


def forged(text, draw):
    """A JSON text with a forgery at one place."""
    value = json.loads(text)
    at = draw.choice(list(places(value)))
    if not at:
        return draw.choice(WHOLE)
    holder, last = value, at[-1]
    for name in at[:-1]:
        holder = holder[name]
    match draw.randrange(4):
        case 0:
            del holder[last]
        case 1 if isinstance(holder, dict):
            holder["unknown"] = holder[last]
        case 1:
            holder.append(holder[last])
        case _:
            holder[last] = "LEAF"
    return json.dumps(value).replace('"LEAF"', draw.choice(LEAVES), 1)


def statements(*listed):
    """Changes the store behind its program's back; returns what the last one finds."""
    with contextlib.closing(sqlite3.connect(STORE, isolation_level=None)) as store:
        return [store.execute(*one).fetchall() for one in listed][-1]


def forge(draw):
    """Forges one row: a place of its result, or of its configuration or versions."""
    column = draw.choice(["payload"] * 4 + ["config", "versions"])
    key, text = draw.choice(
        statements((f"SELECT key, {column} FROM cells ORDER BY key",))
    )
    text = forged(text, draw)
    statements((f"UPDATE cells SET {column} = ? WHERE key = ?", [text, key]))
    return text


@pytest.mark.parametrize("command", RUNS)
def test_a_forged_row_is_one_line_or_a_result(run, command, monkeypatch):
    assert run(command, *RUNS[command], "--out=own").code == 0
    record = f"own/{RECORDS.get(command, f'{command}.json')}"
    first = read_json(record)
    with monkeypatch.context() as patch:
        patch.setattr(ResultStore, "record", lambda *_: pytest.fail("computed again"))
        assert run(command, *RUNS[command], "--out=own").code == 0
    assert first | {"seconds": 0} == read_json(record) | {"seconds": 0}
    draw, faults, refused = random.Random(command), [], 0
    for _ in range(FORGERIES):
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree("own", "out")
        text = forge(draw)
        try:
            ended = run(command, *RUNS[command], "--out=out")
            if ended.code:
                refused += 1
                ended.assert_refused("out/results.sqlite: row '")
                assert "--fresh" in ended.err
                if refused == 1:
                    fresh = run(command, *RUNS[command], "--out=out", "--fresh")
                    assert fresh.code == 0, fresh.err
            assert not re.search(r"\b(nan|inf)\b", ended.out)
            with contextlib.suppress(StoreError):
                read_store(STORE)
        except Exception as error:
            faults.append((repr(error)[:300], text[:300]))
    print(
        f"{FORGERIES} forgeries of {command}, {refused} refused, {len(faults)} at fault"
    )
    assert not faults, "\n".join(map(str, faults))
    assert refused >= 2


TRIGGER = (
    "CREATE TRIGGER forget AFTER INSERT ON cells BEGIN DELETE FROM cells "
    "WHERE key = new.key; END"
)


COLUMNS = {
    "seconds": [9e999, -1.5, "soon"],
    "payload": [None, b"\xff\x00", b"{}"],
    "message": ["none"],
    "device": [b"cpu"],
    "status": ["gone", "failed"],
    "seed": [1.5, "one"],
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_of_another_type_than_its_columns_is_refused(run, column):
    assert run("entropy", *RUNS["entropy"], "--out=own").code == 0
    for value in COLUMNS[column]:
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree("own", "out")
        statements((f"UPDATE cells SET {column} = ?", [value]))
        ended = run("entropy", *RUNS["entropy"], "--out=out")
        ended.assert_refused(f"{STORE}: the store is damaged (row '")
        with pytest.raises(StoreError, match="has values of other types"):
            read_store(STORE)


def test_text_that_is_none_and_a_huge_value_are_one_line_each(run, monkeypatch):
    arguments = [*RUNS["entropy"], "--out=out"]
    assert run("entropy", *arguments).code == 0
    statements(("UPDATE cells SET payload = CAST(x'ff22' AS TEXT)",))
    run("entropy", *arguments).assert_refused("is no result of this command")
    monkeypatch.setattr("bounds.store.file.MOST_BYTES", 2**16)
    huge = "UPDATE cells SET payload = CAST(zeroblob(?) AS TEXT)"
    statements((huge, [2**16 + 1]))
    run("entropy", *arguments).assert_refused(f"{STORE}: the store is damaged")


def test_a_row_that_is_not_kept_as_it_is_written_is_noticed(run):
    assert run("entropy", *RUNS["entropy"], "--out=out").code == 0
    with ResultStore(STORE) as store:
        statements((TRIGGER,))
        with pytest.raises(StoreError, match="was not kept as it was written"):
            store.record({"command": "entropy", "n": 3}, {"n": 3}, 0.5)


def test_a_store_of_an_earlier_schema_is_refused_until_it_is_begun_anew(run):
    for command in ("entropy", "batch"):
        arguments = [*RUNS[command], "--out=out"]
        assert run(command, *arguments).code == 0
        statements((f"PRAGMA user_version = {SCHEMA_VERSION - 1}",))
        for more in ([], ["--dry_run"] if command == "batch" else []):
            ended = run(command, *arguments, *more)
            ended.assert_refused(f"{STORE}: a store of schema {SCHEMA_VERSION - 1}, ")
            assert (
                f"has schema {SCHEMA_VERSION}; begin it anew with --fresh" in ended.err
            )
        assert run(command, *arguments, "--fresh").code == 0
        assert run(command, *arguments).code == 0
        shutil.rmtree("out")


IMPOSSIBLE = {
    "entropy": [{"optimal": -0.5}, {"n": 7}],
    "batch": [{"rows": []}, {"rows": [{"n": "x"}]}, {"rows": [{"optimal": -1}]}],
    "constants": [
        *({"rows": rows} for rows in ([], [{"n": 5}], [{"layer": 7}])),
        {"rows": [{"endless": {"inf": ["n"], "-inf": []}}]},
        {"rows": [{"endless": {"inf": ["F"], "-inf": []}}]},
        {"rows": [{"endless": {"inf": ["of none"], "-inf": []}}]},
    ],
    "simulate": [{"n": 0}, {"n": 9}, {"gap": -1}, {"errors": [-1]}],
    "lipschitz": [{"estimate": -1}, {"substitution": -0.5}, {"n": 0}, {"n": 9}],
    "sensitivity": [{"mean": -1}, {"undecided": -1}, {"n": 9}, {"lower": 99.0}],
    "curve": [
        *({"n": 9}, {"input": 1}, {"influence_lower": -1}),
        {"influence_lower": 1e9},
    ],
    "influence": [{"max": -5}, {"magnitude": -1}, {"position": 4}, {"count": 9}],
    "supremum": [
        {"max_upper": -5},
        {"max_lower": 1e9},
        {"max_lower": 5, "max_upper": 5},
    ],
}


def impossible(row, change):
    """A row with other values; of a list of rows, in its first."""
    match change:
        case {"rows": [dict() as one]}:
            return row | {"rows": [row["rows"][0] | one, *row["rows"][1:]]}
        case {"errors": [x]}:
            return row | {"errors": [x, *row["errors"][1:]]}
    return row | change


@pytest.mark.parametrize("command", IMPOSSIBLE)
def test_what_cannot_be_is_refused_however_well_it_is_formed(command, run):
    assert run(command, *RUNS[command], "--out=own").code == 0
    for change in IMPOSSIBLE[command]:
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree("own", "out")
        name = next(iter(change))
        listed = statements(("SELECT key, payload FROM cells ORDER BY key",))
        key, text = next(one for one in listed if name in json.loads(one[1]))
        text = json.dumps(impossible(json.loads(text), change))
        statements(("UPDATE cells SET payload = ? WHERE key = ?", [text, key]))
        ended = run(command, *RUNS[command], "--out=out")
        ended.assert_refused("of the store is damaged (")
