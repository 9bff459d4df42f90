"""Sweeps: the length or a flag across, what else varies as lines."""

import itertools

import numpy as np
import pytest

from bounds.figures.primitives import MAX_SERIES
from bounds.figures.sweeps import Layout, choose_layout, sweep_figure
from jax_models import InputError


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
    return choose_layout(rows, swept, ("missing", "y"), x, y)


def test_the_first_swept_flag_of_numbers_goes_across_and_the_others_are_lines():
    rows = make_rows(seed=(0, 1), weighting="ab", d_model=(8, 16), p=(0.1, 0.2))
    found = layout(rows, "seed", "weighting", "d_model", "p")
    assert found == Layout("sweep.d_model", "y", ("sweep.weighting", "sweep.p"))


def test_a_length_that_varies_goes_across_and_its_flag_is_no_line():
    rows = [
        {**row, "n": n}
        for row in make_rows(lengths=([8, 16], [8]), p=(0.1, 0.2))
        for n in row["sweep.lengths"]
    ]
    assert layout(rows, "lengths", "p") == Layout("n", "y", ("sweep.p",))
    assert layout(rows, "lengths", "p", x="p").x == "sweep.p"


def test_series_within_a_cell_are_lines_unless_they_are_swept():
    rows = [{**row, "weighting": w} for row in make_rows(p=(1, 2)) for w in ("a", "b")]
    assert layout(rows, "p").lines == ("weighting",)
    swept = [
        {**r, "weighting": r["sweep.weighting"]}
        for r in make_rows(p=(1, 2), weighting="ab")
    ]
    assert layout(swept, "p", "weighting").lines == ("sweep.weighting",)


def test_more_lines_than_can_be_told_apart_are_one_of_medians():
    rows = make_rows(d=(1, 2), a=("x", "y"), b=("x", "y"), c=("x", "y"))
    found = layout(rows, "d", "a", "b", "c")
    assert found == Layout("sweep.d", "y", ("sweep.b", "sweep.c"))
    many = make_rows(d=(1, 2), a=[f"k{k}" for k in range(MAX_SERIES + 1)])
    assert layout(many, "d", "a") == Layout("sweep.d", "y", ())


@pytest.mark.parametrize("chosen", [{"x": "nothing"}, {"y": "other"}, {"y": "p"}])
def test_a_column_that_cannot_be_drawn_is_named_with_those_that_can(chosen):
    (name,) = chosen.values()
    with pytest.raises(InputError, match=f"={name}: expected one of .*y"):
        layout(make_rows(p=(1, 2)), "p", **chosen)


VALUES = {1: 0.0, 2: 1.0, 3: 1e3, 4: None, 5: np.nan}


def drawn(axes):
    """Returns the light marks and the lines of a panel, as lists of (x, y)."""
    found = {True: [], False: []}
    for line in axes.lines:
        points = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        found[line.get_linestyle() == "None"].append(points)
    return found[True], found[False]


def test_every_value_is_a_mark_and_the_line_goes_through_the_medians():
    rows = make_rows(lambda p, seed: p * 10.0**seed, p=(1, 2), seed=(0, 1, 2))
    (axes,) = sweep_figure(rows, layout(rows, "p", "seed"), "y").axes
    marks, lines = drawn(axes)
    assert sorted(marks[0]) == [(p, p * 10.0**s) for p in (1, 2) for s in (0, 1, 2)]
    assert lines == [[(1, 10.0), (2, 20.0)]]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


def test_zeros_and_missing_numbers_do_not_hide_the_others():
    rows = make_rows(lambda p: VALUES[p], p=tuple(VALUES))
    (axes,) = sweep_figure(rows, layout(rows, "p"), "y").axes
    assert drawn(axes)[1] == [[(1, 0.0), (2, 1.0), (3, 1e3)]]
    assert axes.get_yscale() == "symlog"


def test_what_lines_and_marks_are_is_said_where_values_share_a_place():
    told = "lines: medians; light marks: every value"
    for lines, seeds in itertools.product(("a", "ab"), ((0, 1), (0,))):
        rows = make_rows(d=(1, 2), c=lines, seed=seeds)
        figure = sweep_figure(rows, layout(rows, "d", "c", "seed"), "y")
        titles = [legend.get_title().get_text() for legend in figure.legends]
        assert (told in "".join([*titles, figure.get_supxlabel()])) is (len(seeds) > 1)


def test_the_legend_names_its_flags_once_and_stays_within_the_figure():
    words = {"weighting": ("softmax", "leftmost_hard"), "mask": ("none", "past")}
    rows = make_rows(num_layers=(1, 2), **words, position=("sinusoidal",))
    figure = sweep_figure(rows, layout(rows, "num_layers", *words, "position"), "y")
    figure.canvas.draw()
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "--weighting, --mask"
    assert legend.get_texts()[-1].get_text() == "leftmost_hard, past"
    assert legend.get_window_extent().x0 >= 0
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_axes_have_the_names_and_ticks_of_their_values():
    rows = [{**row, "n": n} for row in make_rows(seed=(0,)) for n in (4, 6)]
    (axes,) = sweep_figure(rows, layout(rows, "seed"), "influence\n(‖Δ‖)").axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert names == ("length n (tokens)", "influence\n(‖Δ‖)")
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    rows = make_rows(weighting=("softmax", "hard"))
    (axes,) = sweep_figure(rows, layout(rows, "weighting"), "y").axes
    assert axes.get_xlabel() == "--weighting"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["softmax", "hard"]
