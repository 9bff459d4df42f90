"""The figure of an input whose symbols have names: all of them, legible, at any length."""

from typing import Any

import numpy as np
import pytest

from bounds.figures.inputs import influence_figure, sequence_figure
from bounds.store.pictures import save_figure


def drawn(figure):
    """Rows of the figure: (position, height) of points, tick labels, texts."""
    return [
        (
            [
                (int(x.get_xdata()[0]), x.get_ydata()[0])
                for x in axes.lines
                if x.get_marker() == "o"
            ],
            {
                int(p): t.get_text()
                for p, t in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
            },
            [text.get_text() for text in axes.texts],
        )
        for axes in figure.axes
    ]


@pytest.mark.parametrize("n", [3, 66, 67])
def test_every_position_has_its_letter_its_value_and_its_substitute(n):
    names = ["[CLS]", *(("ACDE" * n)[: n - 2]), "[SEP]"]
    x = np.arange(1, n - 1)
    values = 1 / x
    best = [("WY" * n)[k] for k in x]
    influences = dict(zip(x.tolist(), values, strict=True))
    figure = sequence_figure(influences, names, best, "influence", 2)
    rows = drawn(figure)
    assert len(rows) == -(-(n - 2) // 64)
    points = dict(pair for row in rows for pair in row[0])
    assert points == influences
    ticks = {k: v for row in rows for k, v in row[1].items() if v}
    assert ticks == {k: names[k] for k in x.tolist()}
    texts = [text for row in rows for text in row[2]]
    assert [t for t in texts if t in "WY"] == best
    assert texts.count("query") == 1
    assert [t for t in texts if t.isdecimal()] == [str(k) for k in x if k % 10 == 0]


def test_zeros_lie_on_the_floor_below_all_others():
    influences = {0: 0.0, 1: 1e-3, 2: 1.0}
    figure = sequence_figure(influences, "ACD", "CAA", "", None)
    ((points, _, texts),) = drawn(figure)
    (axes,) = figure.axes
    heights: Any = dict(points)
    assert axes.get_ylim()[0] < heights[0] <= heights[1]
    marks = [x.get_markerfacecolor() for x in axes.lines if x.get_marker() == "o"]
    assert [mark == "white" for mark in marks] == [True, False, False]
    assert "query" not in texts


def test_words_are_written_upright_and_may_be_anything(tmp_path):
    names = ["[CLS]", "the", "##ness", "$x$$", "東京", "▁a", "antidisestablishment"]
    influences = {position: position / 6 for position in range(1, 7)}
    figure = sequence_figure(influences, names, names[:0:-1], "influence", 0)
    save_figure(figure, tmp_path / "figure", ["png"])
    ((_, ticks, _),) = drawn(figure)
    assert list(ticks.values()) == [
        "[CLS]",
        "the",
        "##ness",
        "$x$$",
        "□□",
        "▁a",
        "antidisesta…",
    ]


def test_nothing_to_draw_is_drawn(tmp_path):
    figure = sequence_figure({}, ["[CLS]", "[SEP]"], [], "influence", 1)
    save_figure(figure, tmp_path / "figure", ["png"])


def test_the_influence_along_an_input_is_drawn_with_its_query():
    influences = dict(enumerate([1.0, 0.0, 0.5, 0.25, 0.125]))
    figure = influence_figure(influences, "influence", query=4)
    (axes,) = figure.axes
    points, opened = [line for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_array_equal(points.get_xdata(), [0, 2, 3, 4])
    np.testing.assert_array_equal(opened.get_xdata(), [1])
    assert opened.get_markerfacecolor() == "white" != points.get_markerfacecolor()
    assert "query" in [text.get_text() for text in axes.texts]
