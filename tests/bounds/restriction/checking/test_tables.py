"""Rows are one real vector only where that is certain."""

import numpy as np

from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.tables import Identities

ROWS = np.array([[0.3, 1.0], [0.3, 1.0], [0.3, -0.0], [0.3, 0.0]])


def test_rounded_rows_are_one_only_if_they_are_made_alike():
    """0.1 + 0.2 and 0.3 may round alike and differ: their values say nothing."""
    radius = np.full_like(ROWS, 1e-17)
    ways = [("one",), ("other",), ("one",), ("third",)]
    found = Identities().of_rows(Enclosure(ROWS, radius), ways).tolist()
    assert found[0] == found[2]
    assert len(set(found)) == 3


def test_one_rounded_entry_makes_a_row_rounded():
    radius = np.zeros_like(ROWS)
    radius[:2, 1] = 1e-17
    known = Identities()
    found = known.of_rows(Enclosure(ROWS, radius), [("one",), ("other",), None, None])
    assert len(set(found.tolist())) == 3
    # Exact rows are equal by value, zeros of either sign among them, in every layer.
    assert found[2] == found[3]
    again = known.of_rows(Enclosure.exactly(ROWS[2:]), [("one",), ("new",)])
    assert again.tolist() == found[2:].tolist()
