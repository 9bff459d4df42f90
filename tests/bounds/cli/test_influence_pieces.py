"""What is found of a long input is kept piece by piece, whatever a piece's length."""

import json
from pathlib import Path

import pytest

from bounds import read_store
from bounds.influence import parts
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_csv, read_json
from tests.bounds.stores import execute

OUT = Path("results/influence")
STORE = OUT / "results.sqlite"
SHORT = ("influence", "--length=40", *SHAPE_FLAGS)
# In blocks of four substitutions, as far as the memory goes: pieces of eight or more.
ASKED = (*SHORT, "--method=exhaustive", "--memory_limit=80KiB")
PIECES = [0, 8, 16, 24, 32]


def last(monkeypatch, seconds):
    """Sets what a piece is to take, and says that every one took a second."""
    compute = parts._keep

    def timed(*given):
        return compute(*given)[0], 1.0

    monkeypatch.setattr(parts, "SECONDS", seconds)
    monkeypatch.setattr(parts, "_keep", timed)


def kept():
    store = read_store(STORE)
    return {int(row["config.start"]): row["finished"] for row in store.rows}


@pytest.mark.parametrize(
    ("seconds", "starts"), [(0, PIECES), (2, [0, 8, 24])], ids=["least", "longer"]
)
def test_pieces_of_any_length_join_to_the_whole(run, monkeypatch, seconds, starts):
    with monkeypatch.context() as patch:
        patch.setattr(parts, "UNDER_WAY", 100)
        run(*ASKED)
    assert list(kept()) == [0]
    whole = (OUT / "influence.csv").read_text()
    last(monkeypatch, seconds)
    run(*ASKED, "--fresh")
    assert sorted(kept()) == starts
    assert (OUT / "influence.csv").read_text() == whole


def test_what_is_stopped_loses_a_piece_and_goes_on_in_others(run, monkeypatch):
    run(*ASKED, "--out=results/whole").done()
    last(monkeypatch, 0)
    compute, done = parts._keep, []

    def stopped(*given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(given)
        return compute(*given)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_keep", stopped)
        ended = run(*ASKED)
    assert ended.code == 130
    assert ended.err.endswith("the same command continues where it stopped\n")
    before = kept()
    assert sorted(before) == PIECES[:2]
    monkeypatch.setattr(parts, "SECONDS", 100)
    said = run(*ASKED).out
    assert "positions 0 to 7, from the store" in said
    assert "40 of 40 positions" in said
    after = kept()
    assert sorted(after) == PIECES[:4]
    assert before.items() <= after.items()
    found, expected = (
        Path(f"results/{name}/influence.csv").read_text()
        for name in ("influence", "whole")
    )
    assert found == expected


@pytest.mark.parametrize("command", ["influence", "scan"])
def test_parts_recorded_in_another_format_are_computed_again(command, run, monkeypatch):
    typed = [command, "--length=4", *SHAPE_FLAGS, "--rounding=none", "--out=kept"]
    counts = []
    for version in (parts.FORMAT, parts.FORMAT, parts.FORMAT + 1):
        monkeypatch.setattr(parts, "FORMAT", version)
        assert run(*typed).code == 0
        counts.append(len(read_store("kept/results.sqlite")))
    assert counts == [1, 1, 2]


@pytest.mark.parametrize("rounding", ["all", "top", "none"])
def test_where_nothing_is_substituted_nothing_moves(run, rounding):
    ended = run(
        "influence", "--length=1", *SHAPE_FLAGS, f"--rounding={rounding}"
    ).done()
    assert "nothing can be substituted" in ended.out
    record = read_json("influence")
    assert (record["max_upper"], record["position"], record["n"]) == (0.0, None, 1)
    assert read_csv("influence") == []


def damage(**entries):
    """Changes entries of the first part's record."""
    (key, text), *_ = execute(STORE, "SELECT key, payload FROM cells")
    row = json.dumps({**json.loads(text), **entries})
    execute(STORE, "UPDATE cells SET payload = ? WHERE key = ?", (row, key))


@pytest.mark.parametrize(
    "entries", [{"stop": 0}, {"stop": 41}, {"stop": 38}, {"shape": [7]}]
)
def test_a_part_of_other_positions_is_damage(run, entries):
    assert run(*SHORT).code == 0
    damage(**entries)
    run(*SHORT).assert_refused("a row of the store is damaged (a part from 0 to ")


def test_an_error_over_new_results_is_one_of_the_program(run, monkeypatch):
    def fail(*given):
        raise ValueError("planted")

    monkeypatch.setattr(parts, "settle", fail)
    with pytest.raises(ValueError, match="planted"):
        run(*SHORT)
    run(*SHORT).assert_refused("a row of the store is damaged (planted)")
