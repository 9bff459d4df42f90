"""A logarithmic axis can be read at any span, and no label stands on another."""

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure

from bounds.figures.primitives import label_logarithms, scale_logarithms


@pytest.mark.parametrize(
    ("low", "high", "base"),
    [(16, 64, 10), (40, 50, 2), (16, 4096, 10), (0.52, 0.58, 10), (3.1e-7, 3.3e-7, 10)],
)
def test_a_short_axis_has_labels_and_none_on_another(low, high, base):
    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log", base=base)
    axes.set_yscale("log", base=base)
    axes.plot([low, high], [low, high])
    label_logarithms(axes)
    figure.draw_without_rendering()
    for axis, (first, last), ends in (
        (axes.xaxis, axes.get_xlim(), ("x0", "x1")),
        (axes.yaxis, axes.get_ylim(), ("y0", "y1")),
    ):
        assert not any(label.get_text() for label in axis.get_minorticklabels())
        ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        shown = [t for at, t in ticks if first <= at <= last and t.get_text()]
        assert len(shown) >= 2
        boxes = [label.get_window_extent() for label in shown]
        places = sorted([getattr(box, end) for end in ends] for box in boxes)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(places))


def test_a_linear_axis_is_left_alone():
    axes = Figure().add_subplot()
    axes.plot([1, 2], [1, 2])
    before = axes.xaxis.get_major_locator()
    label_logarithms(axes)
    assert axes.xaxis.get_major_locator() is before


@pytest.mark.parametrize("least", [5e-324, 1e-310, 3e-5])
def test_the_axis_is_linear_below_the_least_decade_of_values_with_zeros(least):
    axes = Figure().add_subplot()
    found = scale_logarithms(axes, np.array([0.0, least, 1.0]))
    assert found == pytest.approx(max(10 ** np.floor(np.log10(least)), 1e-307))
    assert axes.get_yscale() == "symlog"
