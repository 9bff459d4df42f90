"""A step that lasts says where the work is, and whether it waits for the compiler."""

import re
import time

import pytest

from bounds.cli.shared import progress
from bounds.cli.shared.progress import (
    Ahead,
    Program,
    Progress,
    tell_of_waiting,
)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.05)
    monkeypatch.setattr(progress, "LOOK_AGAIN", 0.01)


def until_told(capsys, words):
    """Waits until the words stand in what was printed."""
    told = ""
    while words not in told:
        time.sleep(0.01)
        told += capsys.readouterr().out
    return told


def test_a_step_that_lasts_is_told_of(capsys):
    with Progress(3, "lengths") as running:
        running.advance("n = 4")
        told = until_told(capsys, "at work")
    assert re.search(r"1 of 3 lengths done, at work ... \(\d+ s\)\n", told)


def test_the_compiler_is_named_where_it_is_waited_for(capsys):
    with Progress(3, "lengths") as running:
        running._clock.under_way = True
        told = until_told(capsys, "compiling")
    assert "0 of 3 lengths done, compiling ..." in told


def test_work_that_nothing_counts_is_told_of_and_what_is_counted_by_its_count(capsys):
    with tell_of_waiting():
        assert "at work ... (0 s)" in until_told(capsys, "at work")
        with Progress(7, "layers"):
            counted = until_told(capsys, "0 of 7 layers done, at work")
            time.sleep(0.2)
            counted += capsys.readouterr().out
        assert len(re.findall("^at work", counted, re.MULTILINE)) <= 1
        until_told(capsys, "\nat work")
    time.sleep(0.1)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().out == ""


def test_nothing_is_said_when_the_work_is_over(capsys):
    with Progress(1, "lengths") as running:
        running.advance("n = 4")
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().out == ""


def test_what_is_left_is_told_of_steps_that_are_alike(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    told = {}
    for alike in (True, False):
        now[0] = 0.0
        running = Progress(10, "blocks", alike=alike)
        for later, count in ((0.0, 3), (9.0, 1), (2.0, 1), (4.0, 2)):
            now[0] += later
            # The first are of a store; what is computed first, is compiled first.
            (running.advance if later else running.skip)("block", count)
        told[alike] = capsys.readouterr().out.splitlines()
    # Three blocks in six seconds; three are left.
    assert told[True][-2:] == [
        "5 of 10 blocks (11 s, about 10 s left): block",
        "7 of 10 blocks (15 s, about 6 s left): block",
    ]
    assert told[False][-1] == "7 of 10 blocks (15 s): block"


def test_the_first_step_tells_too_less_what_was_compiled_for_it(capsys, monkeypatch):
    with Progress(10, "blocks", alike=True) as running:
        running._ended.set()  # nothing but steps is told
        heard, start = running._clock, running._start
        assert heard is not None
        # Two at a time take the time of one.
        for name, later, took in (
            ("jaxpr_to_mlir_module", 1.0, 0.0),
            ("jaxpr_to_mlir_module", 2.0, 0.0),
            ("backend_compile", 21.0, 20.0),
            ("backend_compile", 21.0, 19.0),
        ):
            monkeypatch.setattr(progress.time, "monotonic", lambda at=later: start + at)
            heard(f"/jax/core/compile/{name}_duration", took)
        monkeypatch.setattr(progress.time, "monotonic", lambda: start + 24.0)
        running.advance("block", 2)
    told = capsys.readouterr().out
    assert told == "2 of 10 blocks (24 s, about 16 s left): block\n"


def test_the_first_step_of_a_count_tells_by_nothing_before_it(capsys, monkeypatch):
    with Progress(10, "blocks", alike=True) as running:
        running._ended.set()
        start = running._start
        for later, count in ((50.0, 4), (60.0, 4)):
            monkeypatch.setattr(progress.time, "monotonic", lambda at=later: start + at)
            running.advance("block", count)
        for later in (100.0, 200.0):
            monkeypatch.setattr(progress.time, "monotonic", lambda at=later: start + at)
            running.recount(1, 5)
        monkeypatch.setattr(progress.time, "monotonic", lambda: start + 203.0)
        running.advance("more", 1)
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "9 of 10 blocks (203 s, about 3 s left): more"


def test_what_is_left_is_told_of_steps_that_are_not_alike(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    ahead = Ahead([Program("softmax", n) for n in (4, 4, 8, 8)])
    running = Progress(4, "measurements", ahead=ahead)
    for later in (5.0, 4.0, 9.0, 8.0):
        now[0] += later
        running.advance("n")
    assert capsys.readouterr().out.splitlines() == [
        "1 of 4 measurements (5 s): n",
        # Five to compile the other length, and its other run twice as long as the first's.
        "2 of 4 measurements (9 s, about 13 s left): n",
        "3 of 4 measurements (18 s, about 8 s left): n",
        "4 of 4 measurements (26 s): n",
    ]


def test_what_was_left_open_is_counted_by_itself(capsys, monkeypatch):
    """Neither the steps nor the seconds of an earlier count are in those of the next."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    running = Progress(13, "positions", alike=True)
    for later, count in ((2.0, 4), (1.0, 5)):
        now[0] += later
        running.advance("all", count)
    # The first compiles; then two a second, of what becomes fewer; and once more.
    for later, *counts in ((7, 2, 20), (4, 10, 18), (1, 18, 18), (8, 1, 5), (4, 3, 5)):
        now[0] += later
        running.recount(*counts)
    for _ in range(2):
        now[0] += 3.0
        running.advance("more", 1)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "9 of 13 positions (3 s): all",
        "9 of 13 positions done, 2 of 20 left open (10 s)",
        "9 of 13 positions done, 10 of 18 left open (14 s, about 4 s left)",
        "9 of 13 positions done, 18 of 18 left open (15 s)",
        "9 of 13 positions done, 1 of 5 left open (23 s)",
        "9 of 13 positions done, 3 of 5 left open (27 s, about 4 s left)",
        "10 of 13 positions (30 s): more",
        "11 of 13 positions (33 s, about 6 s left): more",
    ]
