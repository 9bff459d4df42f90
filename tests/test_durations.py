"""The fast tests are those that take little time; the table of the others is true."""

from pathlib import Path
from types import SimpleNamespace

from tests import durations
from tests.durations import LAW, LONG_LAW, Durations, mark_long, spread

ROOT = Path(__file__).resolve().parents[1]


class Item:
    def __init__(self, nodeid, mark=None):
        self.nodeid, self.marks = nodeid, {mark} - {None}

    def get_closest_marker(self, name):
        return name if name in self.marks else None

    def add_marker(self, name):
        self.marks.add(name)


def test_every_line_of_the_table_is_of_a_test():
    for name in durations.read_table():
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text()
        if path.startswith("tests/"):
            found = f"def {function.rpartition('::')[2]}(" in text
        else:  # a doctest
            found = f"{function.rpartition('.')[2]}(" in text and ">>>" in text
        assert found, f"tests/long.txt: no test is {name}; leave it out"


def test_fast_cases_are_spread_over_all():
    assert spread(7, 0) == set()
    assert spread(7, 1) == {0}
    assert spread(7, 2) == {0, 6}
    assert spread(7, 3) == {0, 3, 6}
    assert spread(7, 7) == set(range(7))


def test_what_the_table_leaves_out_is_long_or_slow_and_nothing_else():
    several = [Item(f"a.py::law[{x}]") for x in range(4)]
    slow, other, whole = Item("a.py::law[s]", "slow"), Item("a.py::b"), Item("a.py::c")
    many = [Item(f"a.py::many[{x}]") for x in range(5)]
    table = {"a.py::law": (2,), "a.py::c": (0,), "a.py::many": (1, 2)}
    mark_long([*several, slow, other, whole, *many], table)
    long = {"long"}
    assert [x.marks for x in several] == [set(), long, long, set()]
    assert [x.marks for x in many] == [set(), long, {"slow"}, {"slow"}, long]
    assert slow.marks == {"slow"}
    assert not other.marks
    assert whole.marks == long


def test_a_run_writes_anew_what_the_table_says_of_its_tests(tmp_path, monkeypatch):
    table = tmp_path / "long.txt"
    table.write_text("a.py::fast 1\na.py::gone 0\nb.py::left 3 2\n")
    monkeypatch.setattr(durations, "TABLE", table)
    run = Durations()
    for nodeid, seconds in [
        ("a.py::fast", 0.1),
        ("a.py::gone", 3),
        ("a.py::law[1]", 1),
    ]:
        for part in (0.5, 0.25, 0.25):
            took = SimpleNamespace(nodeid=nodeid, duration=part * seconds)
            run.pytest_runtest_logreport(took)
    run.pytest_runtest_logreport(
        SimpleNamespace(nodeid="a.py::law[2]", duration=2 * LAW)
    )
    for case in range(3):
        took = SimpleNamespace(nodeid=f"a.py::many[{case}]", duration=LONG_LAW / 2)
        run.pytest_runtest_logreport(took)
    run.pytest_sessionfinish()
    assert table.read_text().splitlines() == [
        "a.py::gone 0",
        "a.py::law 0",
        "a.py::many 0 2",
        "b.py::left 3 2",
    ]
