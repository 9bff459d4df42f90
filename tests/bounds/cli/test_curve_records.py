"""A bound of a curve is one record, and its cells are those of `bound_curve`."""

from pathlib import Path

import pytest

import jax_models as jm
from bounds import bound_curve
from bounds.cli.shared.columns import FILES
from bounds.curves.columns import CURVE_BOUNDS, CurveBound, CurveColumn
from bounds.curves.measurement import measure
from bounds.store.results import ResultStore
from tests.bounds.cli.outputs import read_csv
from tests.bounds.cli.shape import SHAPE_FLAGS

ASKED = [*SHAPE_FLAGS, "--lengths=4", "--weighting=softmax", "--method=exhaustive"]


def test_a_new_bound_reaches_print_csv_and_figure_as_one_record(run, monkeypatch):
    def twice(model, tokens, question, seed):
        return {"twice": 2 * measure(model, tokens, question)["influence_upper"]}

    look = {"linestyle": "none", "marker": "d"}
    column = CurveColumn("twice", "twice it", "twice the influence", look)
    kind = CurveBound("doubled", "twice the influence", (column,), True, twice)
    monkeypatch.setitem(CURVE_BOUNDS, "doubled", kind)
    monkeypatch.setitem(FILES["curve.csv"], "twice", "twice the influence")
    result = run("curve", *ASKED, "--bounds=doubled", "--figure_format=svg")
    assert (result.code, result.err) == (0, "")
    _, beside = result.out.split("of them: twice the influence for that input:\n")
    heading, first = beside.splitlines()[:2]
    assert heading.endswith("exact  twice it")
    exact, doubled = map(float, first.split()[-2:])
    assert doubled == pytest.approx(2 * exact, rel=1e-3)
    for row in read_csv("curve"):
        assert float(row["twice"]) == 2 * float(row["influence_upper"])
    assert "twice the influence" in Path("results/curve/curve.svg").read_text()


def test_a_curve_asked_for_in_python_goes_on_with_the_commands_store(run, model_file):
    path = model_file()
    asked = ["--lengths=4", "--num_inputs=2", "--bounds=closed_forms"]
    run("curve", f"--model={path}", *asked, "--method=exhaustive", "--seed=3")
    with ResultStore("results/curve/results.sqlite") as store:
        count = len(store.table())
        curve = bound_curve(
            jm.load(path),
            [4],
            inputs="parity",
            num_inputs=2,
            seed=3,
            method="exhaustive",
            bounds=["closed_forms"],
            store=store,
        )
        assert len(store.table()) == count == 2 + 1
    written = read_csv("curve")
    assert [float(row["influence_upper"]) for row in written] == list(
        curve.measurements.column("influence_upper")
    )
