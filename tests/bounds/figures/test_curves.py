"""A figure shows every value it is given, zeros too, and can be read without colour."""

import numpy as np
import pytest

from bounds.curves.series import Decades, Gap, Series
from bounds.figures.curves import (
    BEND,
    curve_figure,
    entropy_figure,
    simulation_figure,
)
from bounds.figures.primitives import LOOKS, MAX_SERIES, save_figure
from bounds.store.table import Table

N = np.repeat([16, 32, 64], 2)
FALLING = Series("falling", N, 1.0 / N)
WITH_ZEROS = Series("with zeros", N, np.array([0.0, 3.0, 2.0, 1.0, 0.0, 0.0]))


def drawn(figure, marker):
    """Returns the light marks and the line that have this marker."""
    (axes,) = figure.axes
    points, line = (line for line in axes.lines if line.get_marker() == marker)
    return points, line


def test_every_value_of_a_curve_is_drawn():
    figure = curve_figure([WITH_ZEROS, FALLING], "influence")
    points, line = drawn(figure, "o")
    np.testing.assert_array_equal(points.get_ydata(), WITH_ZEROS.y)
    np.testing.assert_array_equal(line.get_xdata(), [16, 32, 64])
    np.testing.assert_array_equal(line.get_ydata(), [3.0, 2.0, 0.0])
    # Zero stands within the axes, the least decade of all values a decade above.
    (axes,) = figure.axes
    assert axes.get_ylim()[0] < 0
    assert {0.0, 0.01, 1.0} <= set(axes.get_yticks())
    assert axes.yaxis.get_transform().transform([0.01, 0.1]) == pytest.approx(
        [0.01, 0.02], rel=0.12
    )


def test_a_figure_without_zeros_is_logarithmic_and_has_axes_with_units():
    (axes,) = curve_figure([FALLING], "influence (nats)").axes
    assert axes.get_xlabel() == "length n (tokens)"
    assert axes.get_ylabel() == "influence (nats)"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_figure_of_zeros_alone_can_be_drawn(tmp_path):
    zeros = Series("zero", N, np.zeros(len(N)))
    figure = curve_figure([zeros], "influence")
    save_figure(figure, tmp_path / "curve", ["png"])
    assert list(drawn(figure, "o")[1].get_ydata()) == [0.0, 0.0, 0.0]


def test_series_differ_in_every_feature():
    for feature in ("color", "marker", "linestyle"):
        assert len({str(look[feature]) for look in LOOKS}) == MAX_SERIES
    series = [Series(str(k), N, (k + 1.0) / N) for k in range(MAX_SERIES)]
    (axes,) = curve_figure(series, "influence").axes
    for look in LOOKS:
        points, line = drawn(axes.figure, look["marker"])
        assert points.get_linestyle() == "None"
        assert line.get_color() == look["color"]


def test_near_bounds_stand_beside_the_values_and_far_ones_are_named():
    n, dashed = np.array([16, 64]), {"linestyle": "--", "marker": "^"}
    near = Decades("corrected", dashed, n, np.array([1.0, 0.5]))
    far = Decades("as printed", {"linestyle": ":"}, n, np.array([400.0, 401.0]))
    bounded = Series("bounded (exponent 1.00)", N, 1.0 / N, (near, far))
    figure = curve_figure([WITH_ZEROS, bounded], "influence")
    (axes,) = figure.axes
    assert axes.get_yscale() == "symlog"
    (line,) = [x for x in axes.lines if list(x.get_ydata()) == [10.0, 10**0.5]]
    assert line.get_color() == LOOKS[1]["color"]
    title = axes.get_title(loc="left")
    assert title == "beyond the axis, as printed: $10^{400}$ to $10^{401}$ (bounded)"
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["with zeros", "bounded (exponent 1.00)", "corrected"]
    assert max(np.max(x.get_ydata(), initial=0.0) for x in axes.lines) == 10.0


def test_the_gap_of_the_line_that_bends_is_marked():
    line = (Decades("corrected", {}, np.array([16, 1000]), np.array([1.0, 0.0])),)
    flat = Gap(64, -2.0, 1.0, half_weight=20.0, bend=None, end=1000, at_end=1.0)
    bent = Gap(64, -2.5, 0.5, half_weight=2.1, bend=2.0, end=1000, at_end=0.0)
    series = [
        Series(str(k), N, (k + 1) / N, line, gap) for k, gap in enumerate((flat, bent))
    ]
    figure = curve_figure(series, "influence")
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["", "3.0 decades", "proportional to 1/n"]
    (legend,) = figure.legends
    assert any(text.get_text() == BEND for text in legend.get_texts())
    (mark,) = [x for x in axes.lines if list(x.get_xdata()) == [100, 100]]
    assert mark.get_color() == LOOKS[1]["color"]


def test_series_that_are_the_same_are_one_line_by_both_names():
    bound = Decades("corrected", {}, np.unique(N), np.zeros(3))
    one = Series("leftmost (exponent 1.00)", N, 1 / N)
    other = Series("average (exponent 1.00)", N, 1 / N, (bound,))
    figure = curve_figure([one, other], "influence")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["leftmost and average (exponent 1.00)", "corrected"]
    _, line = drawn(figure, "o")
    assert list(line.get_xdata()) == [16, 32, 64]


def test_series_that_coincide_somewhere_are_set_side_by_side():
    other = Series("other", N, np.where(N == 32, 1.01 / N, 0.2))
    apart = Series("apart", N, 0.5 / N)
    figure = curve_figure([FALLING, other, apart], "influence")
    places = [list(drawn(figure, marker)[1].get_xdata()) for marker in "os^"]
    assert places[0] == places[2] == [16, 32, 64]
    assert all(1 < x / n < 1.1 for x, n in zip(places[1], (16, 32, 64), strict=True))
    assert "side by side" in figure.legends[0].get_title().get_text()


def test_axes_of_entropies_and_simulations_are_named_and_scaled():
    row = {"n": 4, "optimal": 0.8, "floor_r1": 0.9, "floor_kind": "exact"}
    (axes,) = entropy_figure(Table((row,)), "dyck2").axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert names == ("length n (symbols)", "cross-entropy on dyck2 (nats)")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    sweep = {"temperatures": [0.1, 0.2], "errors": [0.0, 0.1], "bounds": [0.1, 0.2]}
    taus = dict.fromkeys(("tau_formula", "tau_certificate", "bound_certificate"), 0.1)
    row = {"n": 4, "gap": 1.0, "epsilon": 0.01, **sweep, **taus}
    (axes,) = simulation_figure(Table((row,))).axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert names == ("temperature τ (score units)", "largest error of an activation")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "symlog")
