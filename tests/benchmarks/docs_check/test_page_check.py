"""A page is run as it stands; what is stale in it is found."""

import contextlib
import dataclasses
import shutil

import numpy as np
import pytest
from matplotlib.image import imsave

from benchmarks.docs_check import page_check
from benchmarks.docs_check.__main__ import choice, define_flags
from benchmarks.docs_check.agreement import image_difference
from benchmarks.docs_check.page_check import Choice, PageCheck
from benchmarks.docs_check.report import Report
from benchmarks.docs_check.session import run_block
from tests.bounds.influence.expect import refused


@pytest.fixture
def outcomes(tmp_path, monkeypatch):
    """Checks a page of a repository that has no other; no process is started."""
    monkeypatch.setattr(page_check, "ROOT", tmp_path)
    monkeypatch.setattr(page_check, "FIGURES", tmp_path / "docs" / "figures")
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / "README.md").touch()
    names: dict = {}

    class Here:
        def __init__(self, folder):
            self.folder = folder
            names.clear()

        def ask(self, request, seconds):
            if "name" in request:
                names[request["name"]] = request["text"]
                return {"printed": "", "values": [], "error": None}
            with contextlib.chdir(self.folder):
                return run_block(request["code"], request["line"], names)

        def close(self):
            pass

    monkeypatch.setattr(page_check, "Session", Here)

    def check(text, **choice):
        page = tmp_path / "docs" / "page.md"
        page.write_text(text)
        report = Report()
        PageCheck(page, Choice(**choice), report).check()
        return [(f.outcome, f.detail) for f in report.findings[1:]]

    return check


SUM = "```python\nx = 1.5 + 1\nx * 2  # 5.0\nprint(x)\n```\n\n```\n2.5\n```\n"


TABLE = "<!-- x -->\n| 2.48 |\n<!-- end of x -->\n"
WORDS = "<!-- check: text words -->\n```\na b\n```\n\n```python\nlen(words)  # 3\n```\n"
PEER = "<!-- check: peers, {} -->\n" + SUM
ABOVE = "\n<!-- check: numbers above -->\nIt is {}.\n"
BELOW = "<!-- check: numbers below -->\nIt is {}.\n\n"
# Pages, and the outcomes of what stands there; the table itself has no store.
PAGES = [
    (SUM, "ok ok"),
    (SUM.replace("# 5.0", "# 5.2"), "stale skipped"),
    (SUM.replace("\n2.5", "\n2.7"), "ok stale"),
    (SUM.replace("x * 2", "y * 2"), "stale skipped"),
    (WORDS, "accepted ok"),
    (PEER.format("no_such_package"), "skipped skipped"),
    (PEER.format("numpy"), "ok ok"),
    ("Words.\n\n```\nwhat is this\n```\n", "stale"),
    (SUM + ABOVE.format("2.50"), "ok ok ok"),
    (SUM + ABOVE.format("2.6"), "ok ok stale"),
    (BELOW.format("2.5") + TABLE, "ok skipped"),
    (BELOW.format("2.6") + TABLE, "stale skipped"),
    (TABLE + ABOVE.format("2.5"), "ok skipped"),
    (TABLE + ABOVE.format("2.5").replace("above", "below"), "stale skipped"),
    # A number is not tied by one that is not.
    ("| 2.5 |\n" + ABOVE.format("2.5"), "stale stale"),
]


@pytest.mark.parametrize(("page", "expected"), PAGES)
def test_what_is_as_stated_is_ok_and_a_planted_mistake_stale(outcomes, page, expected):
    assert [outcome for outcome, _ in outcomes(page)] == expected.split()


def test_what_takes_minutes_is_listed_with_its_reason_and_run_on_request(outcomes):
    page = "<!-- check: minutes, it counts -->\n" + SUM
    assert outcomes(page) == [
        ("skipped", "Python (minutes: it counts)"),
        ("skipped", "the output of what was not run"),
    ]
    assert {outcome for outcome, _ in outcomes(page, everything=True)} == {"ok"}


@pytest.mark.parametrize(
    "text",
    ["It is 2.5.", "It took 3 s.", "From 1654 on.", "| x |\n| 2.5 |", "| 1016 |"],
)
def test_numbers_that_nothing_makes_are_stale(outcomes, text):
    untied = ("stale", "no program makes its numbers")
    assert outcomes(text) == [untied]
    assert outcomes(text, static=True) == [untied]


def test_what_earlier_commands_left_is_seen_on_request_alone(outcomes, tmp_path):
    store = tmp_path / "results" / "curve" / "results.sqlite"
    store.parent.mkdir(parents=True)
    store.touch()
    values = define_flags()
    values(["docs_check"])
    page = "```python\nfrom pathlib import Path\nPath('results').exists()  # {}\n```\n"
    default = dataclasses.asdict(choice(values))
    assert outcomes(page.format(False), **default) == [("ok", "Python")]
    values(["docs_check", f"--results={store.parents[1]}"])
    asked = dataclasses.asdict(choice(values))
    assert outcomes(page.format(True), **asked) == [("ok", "Python")]
    values(["docs_check", "--results=nowhere"])
    with refused("--results: there is no folder"):
        choice(values)


def test_numbers_may_stand_in_a_file(outcomes, tmp_path):
    (tmp_path / "test_x.py").write_text("assert x <= 2.5\n")
    page = "<!-- check: numbers in {} -->\nAt most {}.\n"
    assert outcomes(page.format("test_x.py", "2.5")) == [("ok", "numbers")]
    assert outcomes(page.format("test_x.py", "2.6"))[0][0] == "stale"
    # A number of the file that rounds to it is not the one that is meant.
    (tmp_path / "test_y.py").write_text("x = 2.6, 2.604, 0.5, 1e-9\n")
    assert outcomes(page.format("test_y.py", "2.60"))[0][0] == "ok"
    assert outcomes(page.format("test_y.py", "2.5"))[0][0] == "stale"
    (tmp_path / "test_y.py").write_text("x = 2.604\n")
    assert outcomes(page.format("test_y.py", "2.6"))[0][0] == "stale"
    assert "no file" in outcomes(page.format("gone.py", "2.5"))[0][1]


def test_a_command_that_would_not_be_accepted_is_stale(outcomes):
    page = "```\nattention-bounds depth --layers 3\n```\n"
    assert outcomes(page, static=True)[0][0] == "stale"
    good = page.replace("--layers", "--num_layers")
    assert outcomes(good, static=True)[0][0] == "accepted"


def test_pictures_differ_where_a_curve_has_moved(tmp_path):
    picture = np.ones((40, 50, 3))
    picture[20] = 0
    moved = np.roll(picture, 3, axis=0)
    for name, array in (("a", picture), ("b", moved), ("c", picture[:-1])):
        imsave(tmp_path / f"{name}.png", array)
    shutil.copy(tmp_path / "a.png", tmp_path / "same.png")
    stated = tmp_path / "a.png"
    assert image_difference(stated, tmp_path / "same.png") is None
    assert "100.0 percent" in str(image_difference(stated, tmp_path / "b.png"))
    assert "pixels" in str(image_difference(stated, tmp_path / "c.png"))
    assert "not drawn" in str(image_difference(stated, tmp_path / "d.png"))
