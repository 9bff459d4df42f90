"""A question is made in one place, planned once, and its modules import one way."""

import ast
import functools
import graphlib
from pathlib import Path

import numpy as np
import pytest

import bounds
from bounds.curves import measurement
from bounds.curves.cells import curve_cells
from bounds.curves.inputs import GivenInputs
from bounds.curves.measurement import Question, Subject
from bounds.influence import METHODS, SCREENS
from bounds.influence.build import build_request
from bounds.influence.choice import METHOD_NAMES, choose_method
from bounds.store.results import MemoryResults
from bounds.store.sweep import finish_cells
from tests.architecture import small_model

ROOT = Path(bounds.__file__).parents[1]
FOLDER = ROOT / "bounds" / "influence"


draw = functools.partial(small_model, vocab_size=3, dtype="float64")


def calls(source):
    found = (x.func for x in ast.walk(ast.parse(source)) if isinstance(x, ast.Call))
    return {x.id for x in found if isinstance(x, ast.Name)}


def test_questions_are_made_and_substitutions_listed_in_one_place():
    files = [*ROOT.glob("bounds/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    made = {"InfluenceRequest", "list_substitutions"}
    found = {x.relative_to(ROOT).as_posix(): calls(x.read_text()) & made for x in files}
    assert {k: v for k, v in found.items() if v} == {"bounds/influence/build.py": made}
    assert calls("p = InfluenceRequest(model, tokens)") == {"InfluenceRequest"}


def test_modules_of_influences_import_one_way():
    """For types alone too."""
    graph = {}
    for path in FOLDER.rglob("*.py"):
        parts = ast.walk(ast.parse(path.read_text()))
        imported = {x.module for x in parts if isinstance(x, ast.ImportFrom)}
        graph[".".join(path.relative_to(ROOT).with_suffix("").parts)] = imported
    order = list(graphlib.TopologicalSorter(graph).static_order())
    first, then = "bounds.influence.request", "bounds.influence.method"
    assert order.index(first) < order.index(then)
    graph[first] |= {then}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(graph).prepare()


def test_every_method_computes_or_screens_and_has_one_name():
    assert set(METHOD_NAMES) == {"auto", *METHODS, *SCREENS}
    assert not METHODS.keys() & SCREENS.keys()
    request = build_request(draw(num_layers=2), [0, 1, 2, 1])
    for name in (*METHODS, *SCREENS):
        if {**METHODS, **SCREENS}[name].refuse(request) is None:
            assert choose_method(name, request).way.name == name
    for one in ("Exhaustive", "Partial", "Incremental", "Screened"):
        value = getattr(bounds, one)()
        assert {**METHODS, **SCREENS}[value.name] == value
        assert choose_method(value, request).reason == "asked for"


def test_a_measurement_is_planned_once(monkeypatch):
    planned = []

    def counted(name, request, **how):
        planned.append(request.tokens.size)
        return choose_method(name, request, **how)

    monkeypatch.setattr(measurement, "choose_method", counted)
    inputs = {(4, 0): np.array([0, 1, 2, 1])}
    source = GivenInputs("given", tuple(inputs.values()))
    subject = Subject(draw(), "", source, inputs, Question(method="exhaustive"), 0)
    cells = curve_cells(subject, []).measurements
    results = MemoryResults()
    finish_cells(results, cells)
    assert planned == [4]
    # The sizes of the key are those that it was measured in.
    (cell,) = cells
    row = results.find(cell.config)
    for size in ("block_substitutions", "block_rows"):
        assert row[size] == cell.config[size]
