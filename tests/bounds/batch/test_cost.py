"""Estimates follow what was run, and cheap cells come first."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from bounds.batch.plan import fit_cost
from tests.bounds.batch.cells import make_cell

SIZES = np.geomspace(1e3, 1e9, 10)
FACTORS = {"kind=a": 1.0, "kind=b": 8.0}


def make_sweep():
    """Returns cells, and what they take: 2 ms, 3 ns per pass, times the kind."""
    cells, rows = [], {}
    for index, (kind, size, seed) in enumerate(
        itertools.product(FACTORS, SIZES, range(2))
    ):
        shape = f"{kind} {size}"
        cell = make_cell(index, shape=shape, size=size, levels=(kind,))
        noise = math.exp(0.2 * math.sin(7.0 * index))
        compiling = 0.7 if seed == 0 else 0.0
        seconds = (2e-3 + 3e-9 * size) * FACTORS[kind] * noise + compiling
        cells.append(cell)
        rows[cell.key] = {
            "status": "done",
            "seconds": seconds,
            "compile_seconds": compiling,
        }
    return cells, rows


def within_two(cells, rows, model):
    """Returns the share of cells whose estimate is within a factor of 2."""
    found = model.estimates(cells)
    ratios = [t / rows[c.key]["seconds"] for c, t in zip(cells, found, strict=True)]
    return np.mean([0.5 <= ratio <= 2.0 for ratio in ratios])


def test_a_calibrated_estimate_is_within_a_factor_of_two():
    cells, rows = make_sweep()
    sample = {cell.key: rows[cell.key] for cell in cells[::4]}
    model = fit_cost(cells, sample)
    assert model.observed == 10
    assert within_two(cells, rows, model) >= 0.9


def test_the_measure_catches_estimates_without_the_kinds():
    cells, rows = make_sweep()
    one_kind = {c.key: rows[c.key] for c in cells[::4] if c.levels == ("kind=a",)}
    assert within_two(cells, rows, fit_cost(cells, one_kind)) < 0.9


def test_one_outlier_of_equal_cells_is_outvoted():
    cells, rows = make_sweep()
    cells = [dataclasses.replace(cell, programs=("one",)) for cell in cells]
    expected = fit_cost(cells, rows).estimates(cells)[10]
    equal = [dataclasses.replace(cells[10], key=f"again {k}") for k in range(4)]
    more = {cell.key: rows[cells[10].key] for cell in equal}
    wild = dataclasses.replace(cells[10], key="wild")
    more["wild"] = rows[cells[10].key] | {"seconds": 1e4}
    found = fit_cost([*cells, *equal, wild], rows | more).estimates(cells)[10]
    assert found == pytest.approx(expected, rel=0.3)


def test_far_from_everything_the_formula_is_left_alone():
    cells, rows = make_sweep()
    cells, rows = cells[2:20:2], {c.key: rows[c.key] for c in cells[2:20:2]}
    model = fit_cost(cells, rows)
    assert model.run.alike is not None
    far = make_cell("far", shape="far", size=1e40, levels=("kind=c",))
    near = [abs(model.run.alike.at(cell, 1.0)) for cell in cells]
    assert max(near) > 0.01 > abs(model.run.alike.at(far, 1.0))


def test_only_the_first_cell_of_a_shape_compiles():
    cells, rows = make_sweep()
    first, second = fit_cost(cells, rows).estimates(cells[:2])
    assert first - second == pytest.approx(0.7, rel=0.1)


def test_the_first_cell_of_a_shape_is_slower_outside_the_compiler_too():
    cells, rows = make_sweep()
    for cell in cells[::2]:
        rows[cell.key]["seconds"] += 4.0 * (rows[cell.key]["seconds"] - 0.7)
    sample = [*range(0, 40, 4), *range(1, 40, 8)]
    model = fit_cost(cells, {cells[k].key: rows[cells[k].key] for k in sample})
    assert within_two(cells, rows, model) >= 0.9


def test_cells_that_share_programs_compile_them_once():
    cells, rows = make_sweep()
    apart = make_cell("a", shape="apart", size=1e3, levels=("kind=a",))
    both = dataclasses.replace(apart, programs=(*apart.programs, *cells[0].programs))
    model = fit_cost(cells, rows)
    alone, shared = (model.estimates([cells[0], cell])[1] for cell in (apart, both))
    assert alone - shared == pytest.approx(0.35, rel=0.2)
    assert model.estimates([cells[0], cells[0]])[1] < 0.1


def test_what_is_measured_of_a_part_of_the_programs_stands_for_that_part():
    cells, rows = make_sweep()
    for k in range(2, len(cells), 2):
        shared = (*cells[0].programs, *cells[k].programs)
        cells[k] = dataclasses.replace(cells[k], programs=shared)
        row = rows[cells[k].key]
        row |= {"seconds": row["seconds"] - 0.35, "compile_seconds": 0.35}
    alone = make_cell("a", shape="apart", size=1e3, levels=("kind=a",))
    model = fit_cost([*cells, alone], rows)
    assert model.estimates([alone])[0] == pytest.approx(0.7, rel=0.1)


def test_a_sweep_that_compiles_nothing_is_charged_nothing_for_it():
    cells, rows = make_sweep()
    for cell in cells[::2]:
        row = rows[cell.key]
        row |= {"seconds": row["seconds"] - 0.7, "compile_seconds": 0.0}
    model = fit_cost(cells, {cell.key: rows[cell.key] for cell in cells[::4]})
    assert within_two(cells, rows, model) >= 0.9


def test_failed_cells_tell_nothing():
    cells, rows = make_sweep()
    failed = {key: {"status": "failed", "seconds": 0.0} for key in rows}
    assert fit_cost(cells, failed).observed == 0


def test_cheap_cells_come_first_and_those_of_a_shape_together():
    cells, rows = make_sweep()
    for known in ({}, rows):
        ordered = fit_cost(cells, known).order(cells[::-1])
        shapes = [cell.shape for cell in ordered]
        assert len([one for one, _ in itertools.groupby(shapes)]) == len(set(shapes))
        for kind in FACTORS:
            sizes = [c.work.terms["passes"] for c in ordered if c.levels == (kind,)]
            costs = [2e-3 + 3e-9 * size for size in sizes]
            # What was measured is off by exp(0.2) at most.
            pairs = itertools.combinations(costs, 2)
            assert all(earlier <= math.exp(0.5) * later for earlier, later in pairs)
