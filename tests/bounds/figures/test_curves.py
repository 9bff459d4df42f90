"""Figures of rows name both axes with the quantity and the unit of these rows."""

import numpy as np
import pytest

from bounds.figures.curves import (
    MOST_PANELS,
    entropy_figure,
    loss_figure,
    simulation_figure,
    sweep_figure,
)
from bounds.store.table import Table
from jax_models.languages.base import Levels
from tests.bounds.figures.test_sweep_layout import layout, make_rows

LEVELS = Levels(optimal=0.8, last_symbol=1.0, unigram=1.1)
ROWS = [
    {"step": 0, "loss": 3.0, "optimal": 0.7, "loss_4": 1.4, "loss_8": 1.5},
    {"step": 1, "loss": 1.2, "optimal": 0.9},
    {"step": 2, "loss_4": 0.9, "loss_8": 1.05},
]


@pytest.fixture(scope="module")
def lines():
    missing = {"step": 3, "loss_4": None}
    (axes,) = loss_figure([*ROWS, missing], (4, 8), 8, LEVELS).axes
    return {line.get_label(): line for line in axes.lines}


def test_losses_stand_at_their_steps_and_levels_are_level(lines):
    for label, steps, losses in (
        ("batch", [0, 1], [3.0, 1.2]),
        ("n = 4", [0, 2], [1.4, 0.9]),
        ("n = 8", [0, 2], [1.5, 1.05]),
    ):
        np.testing.assert_array_equal(lines[label].get_xdata(), steps)
        np.testing.assert_array_equal(lines[label].get_ydata(), losses)
    levels = {"optimum, n = 8": 0.8, "last symbol, n = 8": 1.0, "unigram, n = 8": 1.1}
    for label, level in {**levels, "optimum, batches": 0.8}.items():
        np.testing.assert_allclose(lines[label].get_ydata(), level, rtol=1e-12)


def test_lines_of_lengths_differ_in_more_than_colour(lines):
    one, other = lines["n = 4"], lines["n = 8"]
    assert one.get_marker() != other.get_marker()
    assert one.get_linestyle() != other.get_linestyle()


def test_losses_that_end_above_the_levels_are_seen():
    high = [
        {k: x if k in ("step", "optimal") else x + 9 for k, x in row.items()}
        for row in ROWS
    ]
    (axes,) = loss_figure(high, (4, 8), 8, LEVELS).axes
    low, top = axes.get_ylim()
    assert low < LEVELS.optimal
    assert top > 10.2


LOSS_ROWS = [{"step": 0, "loss": 1.0, "optimal": 0.7, "loss_4": 1.4}]
ENTROPY = Table(({"n": 4, "optimal": 0.8, "floor_r1": 0.9, "floor_kind": "exact"},))
SIMULATION = Table(
    (
        {
            **{"n": 4, "temperatures": [0.1, 0.2], "errors": [0.0, 0.1]},
            **{"bounds": [0.1, 0.2], "gap": 1.0, "epsilon": 0.01, "tau_formula": 0.1},
            **{"tau_certificate": 0.1, "bound_certificate": 0.1},
        },
    )
)
FIGURES = {
    "loss": (
        lambda: loss_figure(LOSS_ROWS, (4,), 4, Levels(0.8, 1.0, 1.1)),
        ("step", "cross-entropy (nats per symbol)", "linear", "linear"),
    ),
    "entropy": (
        lambda: entropy_figure(ENTROPY, "dyck2"),
        ("length n (symbols)", "cross-entropy on dyck2 (nats)", "log", "linear"),
    ),
    "simulation": (
        lambda: simulation_figure(SIMULATION),
        ("temperature τ (score units)", "largest error of an activation", "log", "log"),
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_and_scaled(name):
    draw, expected = FIGURES[name]
    (axes,) = draw().axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert (*names, axes.get_xscale(), axes.get_yscale()) == expected


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


def test_lengths_have_ticks_at_whole_numbers():
    rows = [{**row, "n": n} for row in make_rows(seed=(0,)) for n in (4, 6)]
    (axes,) = sweep_figure(rows, layout(rows, "seed"), "y").axes
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_zeros_and_missing_numbers_do_not_hide_the_others():
    rows = make_rows(lambda p: VALUES[p], p=tuple(VALUES))
    (axes,) = sweep_figure(rows, layout(rows, "p"), "y").axes
    assert drawn(axes)[1] == [[(1, 0.0), (2, 1.0), (3, 1e3)]]
    assert axes.get_yscale() == "symlog"


def test_words_go_across_in_their_order():
    rows = make_rows(weighting=("softmax", "hard"))
    (axes,) = sweep_figure(rows, layout(rows, "weighting"), "y").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["softmax", "hard"]


def test_of_many_panels_some_are_shown_and_the_figure_says_so():
    rows = make_rows(d=(1, 2), a=[f"k{k:02}" for k in range(30)])
    figure = sweep_figure(rows, layout(rows, "d", "a"), "y")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles[0] == "a = k00"
    assert len(titles) <= MOST_PANELS
    assert figure.get_suptitle() == f"{len(titles)} of 30 panels"


@pytest.mark.parametrize("lines", ["a", "ab"])
def test_what_lines_and_marks_are_is_said_where_values_share_a_place(lines):
    told = "lines: medians; light marks: every value"
    for seeds, said in (((0, 1), told), ((0,), "")):
        rows = make_rows(d=(1, 2), c=lines, seed=seeds)
        figure = sweep_figure(rows, layout(rows, "d", "c", "seed"), "y")
        titles = [legend.get_title().get_text() for legend in figure.legends]
        assert (told in "".join([*titles, figure.get_supxlabel()])) is bool(said)


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


def test_axes_are_named_by_the_flag_and_the_quantity():
    rows = make_rows(p=(1, 2))
    (axes,) = sweep_figure(rows, layout(rows, "p"), "influence\n(‖Δ‖)").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("--p", "influence\n(‖Δ‖)")
