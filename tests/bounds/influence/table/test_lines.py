"""Names of substitutions as A25G, lines by position and symbol, and the largest."""

import csv

import numpy as np
import pytest

from bounds.influence.table.lines import Named, largest_lines, write_lines
from bounds.recipes import Residues
from tests.bounds.figures.test_inputs import made
from tests.bounds.influence.expect import refused

NAMES = ("<cls>", "A", "G", "C", "<eos>", ".")
TOKENS = np.array([0, 3, 1, 1, 2, 4])


def residues(first=25):
    return Residues(NAMES.__getitem__, TOKENS, (0, 4), first)


def table(**changed):
    """A table of positions and letters out of order; NaN at the wild type."""
    positions, symbols = np.array([4, 1, 2]), np.array([2, 3, 1])
    values = np.arange(9.0).reshape(3, 3) - 4
    values[TOKENS[positions][:, None] == symbols] = np.nan
    axes = ("position", "symbol")
    named = {"positions": positions, "symbols": symbols, "rows": np.array([2])}
    return made(values, axes, TOKENS, **(named | changed))


@pytest.mark.parametrize("first", [1, 25, -3])
def test_names_of_substitutions_round_trip(first):
    named = residues(first)
    for position in range(1, 5):
        for symbol in (1, 2, 3):
            name = named.mutation(position, symbol)
            assert name is not None
            assert named.find(name, range(6)) == (position, symbol)
    assert named.mutation(1, 2) == f"C{first}G"
    assert named.numbers == (None, first, first + 1, first + 2, first + 3, None)


def test_what_is_no_letter_has_no_name():
    named = residues()
    assert named.mutation(0, 1) is None
    assert named.mutation(1, 5) is None
    assert named.place(0) == "0"
    assert named.place(1) == "C25"


def test_a_name_that_is_not_of_the_input_is_refused():
    for text, complaint in (
        ("A26", "names no substitution"),
        ("A29G", "numbers 25 to 28"),
        ("G26A", "residue 26 is A, not G"),
        ("A26W", "no symbol is named W"),
    ):
        with refused(complaint):
            residues().find(text, range(6))
    with refused("first = 0.5"):
        residues(0.5)


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def lines_of(tmp_path):
    """Function that writes a scan and reads its lines."""

    def lines(scan, *named):
        scan.to_csv(tmp_path / "scan.csv", *named)
        return read(tmp_path / "scan.csv")

    return lines


def test_lines_are_by_position_and_symbol_with_names(lines_of):
    lines = lines_of(table(), residues())
    places = [(int(x["position"]), int(x["symbol"])) for x in lines]
    assert places == sorted(places)
    named = [(x["mutation"], float(x["value"])) for x in lines]
    expected = {"C25A": 1, "C25G": -1, "A26G": 2, "A26C": 3, "G28A": -2, "G28C": -3}
    assert named == list(expected.items())


def test_a_map_names_residues_and_rows(lines_of):
    axes, at = ("position", "row"), np.array([4, 0, 1])
    scan = made(np.ones((3, 2)), axes, TOKENS, positions=at, rows=np.array([5, 2]))
    lines = lines_of(scan, residues())
    named = [(x["residue"], x["row_residue"]) for x in lines]
    assert named == [(x, y) for x in ("", "C25", "G28") for y in ("", "A26")]
    assert "mutation" not in lines[0]


def test_symbols_of_each_position_and_rows_are_sorted(lines_of):
    symbols = np.array([[3, 1], [2, 1], [3, 2]])
    values = np.arange(12.0).reshape(3, 2, 2)
    at = {"positions": np.array([4, 1, 2]), "rows": np.array([5, 3])}
    axes = ("position", "symbol", "row")
    lines = lines_of(made(values, axes, TOKENS, symbols=symbols, **at))
    found = [tuple(int(x[name]) for name in ("position", "symbol")) for x in lines]
    assert found == sorted(found)
    assert [float(x["value"]) for x in lines[:4]] == [6, 7, 4, 5]


def test_records_share_a_table_and_its_largest(tmp_path):
    entries = [Named(table(), residues(), "one"), Named(table(), residues(1), "two")]
    write_lines(tmp_path / "scan.csv", entries)
    lines = read(tmp_path / "scan.csv")
    assert [x["record"] for x in lines] == ["one"] * 6 + ["two"] * 6
    top = [(x["record"], x["mutation"]) for x in largest_lines(entries, 3)]
    assert top == [("one", "A26C"), ("one", "G28C"), ("two", "A2C")]
    assert len(largest_lines(entries, 100)) == 12


def test_figures_number_residues():
    def labels(figure):
        return [x.get_text() for x in figure.axes[0].get_xticklabels()]

    figure = table().plot(name=residues())
    assert figure.get_supxlabel().startswith("residue")
    assert labels(figure) == ["G\n ", "C\n ", "A\n "]
    assert labels(table().plot(name=residues(9))) == ["G\n ", "C\n ", "A\n10"]
    assert figure.get_supxlabel().endswith("row A26 is watched")
    drawn = table().plot(name=residues(9), figure="letters")
    texts = [x.get_text() for x in drawn.axes[0].texts]
    assert [x for x in texts if x.isdecimal()] == ["10"]
    assert "row A10, shaded, is watched" in drawn.get_supxlabel()
    at = {"positions": np.array([1, 2]), "rows": np.array([0, 1])}
    square = made(np.ones((2, 2)), ("position", "row"), TOKENS, **at)
    axes = square.plot(name=residues()).axes[0]
    assert axes.get_xlabel() == "residue that is replaced"
