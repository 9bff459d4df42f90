"""Of every column that a CSV declares, and of no other, it is said what it holds."""

import pytest

from bounds.cli import influence, lipschitz
from bounds.curves.columns import bound_columns
from bounds.lemma5.lipschitz.curve import NAMES as BOUNDS
from bounds.simulation.compute import COLUMNS as SIMULATION
from tests.bounds.cli.outputs import FILES, find_words

DECLARED = {
    "influence.csv": (*influence.COLUMNS, *influence.SYMBOL_NAMES),
    "lipschitz.csv": (
        *lipschitz.COLUMNS,
        *(f"{kind}_{name}" for kind in ("log10", "looseness") for name in BOUNDS),
    ),
    "simulate.csv": SIMULATION,
}


@pytest.mark.parametrize("file", DECLARED)
def test_what_a_csv_declares_is_described(file):
    assert [x for x in DECLARED[file] if find_words(file, x) is None] == []
    named = [x for x in FILES[file] if "*" not in x]
    assert set(named) <= set(DECLARED[file])


def test_bounds_of_curves_are_described():
    assert set(bound_columns()) <= set(FILES["curve.csv"])


def test_a_name_that_is_nowhere_described_is_noticed():
    assert find_words("curve.csv", "influence") is None
    assert find_words("train.csv", "loss_16") == find_words("train.csv", "loss_4")
