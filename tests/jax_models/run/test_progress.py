"""A step that lasts says where the work is, and whether it waits for the compiler."""

import re
import time

import jax
import pytest

from jax_models.run import progress
from jax_models.run.progress import LOWERED, Progress, tell_of_waiting


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
    with tell_of_waiting(), Progress(3, "lengths") as running:
        running.advance("n = 4")
        told = until_told(capsys, "at work")
    assert re.search(r"1 of 3 lengths done, at work ... \(\d+ s\)\n", told)


def test_the_compiler_is_named_where_it_is_waited_for(capsys):
    with tell_of_waiting(), Progress(3, "lengths"):
        jax.monitoring.record_event_duration_secs(LOWERED, 0.1)
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


def test_a_count_that_has_ended_is_told_of_no_more(capsys):
    with Progress(3, "lengths") as running:
        time.sleep(0.1)
        running.wait("at work ...")
        assert "0 of 3 lengths done, at work ..." in capsys.readouterr().out
        time.sleep(0.1)
    running.wait("at work ...")
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


def test_what_was_left_open_is_counted_by_itself(capsys, monkeypatch):
    """Neither the steps nor the seconds of an earlier count are in those of the next."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    running = Progress(13, "positions", alike=True)
    for later, count in ((2.0, 4), (1.0, 5)):
        now[0] += later
        running.advance("all", count)
    for later, *counts in ((7, 2, 20), (4, 10, 18)):
        now[0] += later
        running.recount(*counts)
    for _ in range(2):
        now[0] += 3.0
        running.advance("more", 1)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "9 of 13 positions (3 s, about 1 s left): all",
        "9 of 13 positions done, 2 of 20 left open (10 s)",
        "9 of 13 positions done, 10 of 18 left open (14 s)",
        "10 of 13 positions (17 s): more",
        "11 of 13 positions (20 s, about 6 s left): more",
    ]
