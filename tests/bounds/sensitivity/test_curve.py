"""The fitted power of average sensitivities, and their figure."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from bounds.sensitivity.average import Sensitivity
from bounds.sensitivity.curve import SensitivityCurve, as_row


def curve_of(values):
    """A curve of inputs that an end token follows; means by positions."""
    rows = []
    for n, value in values.items():
        ends = {"lower": value, "upper": value, "kind": "estimated", "undecided": 0}
        spread = (value / 2, 2 * value) if n > 16 else None
        about = {"length": n + 1, "positions": n, "inputs": 32, "interval": spread}
        rows.append(as_row(Sensitivity(form="sign", **ends, **about)))
    return SensitivityCurve("softmax", rows)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_a_power_of_the_positions_is_found(power):
    curve = curve_of({n: 3.0 * n**power for n in (4, 9, 25, 100)})
    assert curve.fit.exponent == pytest.approx(-power)
    assert f"grows like n^{power:.2f}" in curve.finding
    assert "4 lengths of 4 to 100 positions" in curve.finding


def test_too_few_lengths_have_no_power():
    assert "fitted to 4 or more" in curve_of({4: 1.0, 9: 2.0, 25: 0.0}).finding


def test_means_bars_and_guides_are_drawn():
    curve = curve_of({4: 2.0, 9: 3.0, 25: 0.0, 100: 10.0})
    figure = curve.plot()
    (axes,) = figure.axes
    drawn = [line.get_xydata() for line in axes.get_lines()]
    for power in (1.0, 0.5):
        ends = np.array([4.0, 100.0])
        guide = np.stack([ends, ends**power], axis=1)
        assert any(np.array_equal(x, guide) for x in drawn)
    means = [[4, 2], [9, 3], [100, 10]]
    assert any(np.array_equal(x, means) for x in drawn)
    (bars,) = axes.collections
    assert isinstance(bars, LineCollection)
    assert bars.get_segments()[1].tolist() == [[100, 5], [100, 20]]
    assert axes.get_xlabel() == "positions n that are replaced"
    assert axes.get_ylabel() == "average sensitivity (positions)"
