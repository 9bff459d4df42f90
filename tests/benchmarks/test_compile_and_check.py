"""What is timed is a right model, and a wrong one is an error."""

import dataclasses

import pytest

from benchmarks import compile_and_check
from jax_models.programs.logic.applications import ending_ngram
from jax_models.programs.rasp import k_hop_program
from tests.benchmarks.settings import ONCE
from tests.bounds.influence.expect import refused

CONFIG = {**ONCE, "family": "word", "k": 1, "self_test": 2}


def test_a_row_has_what_was_checked_and_the_ratios():
    row = compile_and_check.measure(CONFIG)
    assert row["longest"] == 100
    # All strings of length 1 and 2 over three symbols, and eight of each longer length.
    random = row["positions"] - 3 - 2 * 9
    assert random > 8 * row["longest"]
    assert random % 8 == 0
    ratio = row["compile_seconds"] / row["forward_seconds"]
    assert row["compile_passes"] == ratio
    assert len(compile_and_check.line(CONFIG, row)) == len(compile_and_check.HEAD)
    assert compile_and_check.draw([(CONFIG, row)]).axes


def test_what_is_compiled_grows_with_k():
    for family, subject in compile_and_check.FAMILIES.items():
        parts = [subject(k).parts for k in (1, 2, 4)]
        assert parts == sorted(set(parts)), family


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            compile_and_check.formula_subject(ending_ngram("ab")),
            compile_and_check.formula_subject(ending_ngram("ac")),
        ),
        pytest.param(
            compile_and_check.program_subject(k_hop_program(1)),
            compile_and_check.program_subject(k_hop_program(2)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["formula", "program"],
)
def test_a_model_of_something_else_is_caught(monkeypatch, right, wrong):
    # A program's model is read by its own plan, which another's does not fit.
    planted = dataclasses.replace(right, build=wrong.build)
    monkeypatch.setitem(compile_and_check.FAMILIES, "word", lambda k: planted)
    with refused("errs"):
        compile_and_check.measure(CONFIG)
