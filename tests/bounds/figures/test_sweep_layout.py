"""Layouts of sweeps: the length or a flag across, what else varies as lines and panels."""

import itertools

import pytest

from bounds.figures.sweep_layout import Layout, choose_layout
from jax_models import InputError

SEED, MOST_LINES = ("seed", "input"), 7


def make_rows(value=lambda **flags: 1.0, **swept):
    """Returns a row for each cell of a cross product."""
    return [
        {
            "status": "done",
            **{f"sweep.{name}": v for name, v in zip(swept, cell, strict=True)},
            "y": value(**dict(zip(swept, cell, strict=True))),
            "other": "text",
        }
        for cell in itertools.product(*swept.values())
    ]


def layout(rows, *swept, x=None, y=None):
    return choose_layout(rows, swept, SEED, ("missing", "y"), MOST_LINES, (x, y))


def test_the_first_swept_flag_of_numbers_goes_across_and_the_others_are_lines():
    rows = make_rows(seed=(0, 1), weighting="ab", d_model=(8, 16), p=(0.1, 0.2))
    found = layout(rows, "seed", "weighting", "d_model", "p")
    assert found == Layout("sweep.d_model", "y", (), ("sweep.weighting", "sweep.p"))


def test_a_length_that_varies_goes_across_and_its_flag_is_no_line():
    rows = [
        {**row, "n": n}
        for row in make_rows(lengths=([8, 16], [8]), p=(0.1, 0.2))
        for n in row["sweep.lengths"]
    ]
    assert layout(rows, "lengths", "p") == Layout("n", "y", (), ("sweep.p",))
    assert layout(rows, "lengths", "p", x="p").x == "sweep.p"


def test_series_within_a_cell_are_lines_unless_they_are_swept():
    rows = [{**row, "weighting": w} for row in make_rows(p=(1, 2)) for w in ("a", "b")]
    assert layout(rows, "p").lines == ("weighting",)
    swept = [
        {**r, "weighting": r["sweep.weighting"]}
        for r in make_rows(p=(1, 2), weighting="ab")
    ]
    assert layout(swept, "p", "weighting").lines == ("sweep.weighting",)


def test_lines_that_cannot_be_told_apart_become_panels():
    rows = make_rows(d=(1, 2), a=("x", "y"), b=("x", "y"), c=("x", "y"))
    found = layout(rows, "d", "a", "b", "c")
    assert found == Layout("sweep.d", "y", ("sweep.a",), ("sweep.b", "sweep.c"))
    many = make_rows(d=(1, 2), a=[f"k{k}" for k in range(MOST_LINES + 1)])
    assert layout(many, "d", "a") == Layout("sweep.d", "y", ("sweep.a",), ())


@pytest.mark.parametrize("chosen", [{"x": "nothing"}, {"y": "other"}, {"y": "p"}])
def test_a_column_that_cannot_be_drawn_is_named_with_those_that_can(chosen):
    (name,) = chosen.values()
    with pytest.raises(InputError, match=f"={name}: expected one of .*y"):
        layout(make_rows(p=(1, 2)), "p", **chosen)
