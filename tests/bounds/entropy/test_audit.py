"""The audit's page holds what the code prints, and the foil has its own oracle."""

from pathlib import Path

import numpy as np
import pytest

from bounds.entropy.audit import TABLES

PAGE = (Path(__file__).parents[3] / "docs" / "theorem6-audit.md").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_the_page_holds_exactly_what_the_module_prints(name):
    start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    assert PAGE.count(start) == PAGE.count(end) == 1
    assert PAGE.split(start)[1].split(end)[0] == TABLES[name]()


@pytest.mark.parametrize("p", [0.1, 0.25, 0.4])
def test_the_restarted_chain_closes_and_rests_as_the_tables_say(p):
    size, law, closing = 120, np.eye(120)[0], 0.0
    for _ in range(4000):
        before, law = law, np.zeros(size)
        law[1:] += p * before[:-1]
        law[:-1] += (1 - p) * before[1:]
        law[1] += (1 - p) * before[0]  # reflected instead of killed
        closing = (1 - p) * before[2:].sum()
    r = p / (1 - p)
    assert law[0] == pytest.approx(1 - r, rel=1e-6)
    assert closing == pytest.approx(r * r / (1 + r), rel=1e-6)
    row = next(x for x in TABLES["closing"]().splitlines() if x.startswith(f"| {p:g} "))
    assert row.split("|")[-3].strip() == f"{closing:.6f}"


def test_no_floor_on_the_page_of_trained_networks_is_above_its_limit():
    """Weighted exactly, an estimated floor of PARITY stays below the last-symbol level."""
    page = (Path(__file__).parents[3] / "docs" / "theorem6.md").read_text()
    rows = [[x.strip() for x in y.split("|")] for y in page.splitlines() if "|" in y]
    floors = [
        (float(row[4].split()[0]), float(row[3].split()[0]), float(row[8]))
        for row in rows
        if row[1].startswith("parity") and row[4]
    ]
    assert len(floors) > 6
    for floor, entropy, limit in floors:
        assert floor <= min(entropy, limit)
