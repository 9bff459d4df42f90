"""A curve puts every bound beside what it bounds, and measures the distance."""

import math
from typing import Any

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.lemma5.lipschitz import Effort, LipschitzCurve, lipschitz_curve
from bounds.lemma5.lipschitz.curve import PROPORTIONAL, looseness
from bounds.store.table import Table
from tests.architecture import small_model


def test_the_fit_has_an_exponent_and_an_interval():
    lengths = np.array([4, 8, 16, 32])
    rows = [
        {"n": n, "estimate": 3 / n * wobble, "substitution": 1 / n**2}
        for n, wobble in zip(lengths, (1.01, 0.98, 1.02, 1), strict=True)
    ]
    curve = LipschitzCurve("softmax", "activation", Table(tuple(rows)))
    assert curve.fit().exponent == pytest.approx(1, abs=0.02)
    interval: Any = curve.interval()
    low, high = interval
    assert 0.9 < low < 1 < high < 1.1
    assert curve.fit("substitution").exponent == pytest.approx(2)


@pytest.fixture
def drawn():
    """Figure of two lengths, with one bound near the estimate and one far from it."""
    rows = [
        {"n": n, "estimate": 1.0, "log10_c1": 2.0, "log10_printed": 99.0}
        for n in (4, 8)
    ]
    return LipschitzCurve("softmax", "activation", Table(tuple(rows))).plot()


def test_axes_are_named_and_scaled(drawn):
    (axes,) = drawn.axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert names == ("length n (tokens)", "‖Δy‖ / ‖Δ embedding‖")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_near_bounds_are_lines_and_far_ones_are_named_above(drawn):
    names = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert names == ["estimate of $K_n$: all searches", PROPORTIONAL["c1"]]
    (axes,) = drawn.axes
    title = axes.get_title(loc="left")
    assert title == f"beyond the axis, {PROPORTIONAL['printed']}: $10^{{99}}$"
    heights = [list(line.get_ydata()) for line in axes.lines if line.get_ydata().size]
    # Marks, the line through them, the bound, and a line of slope -1 above the first.
    guide = [1.6, 0.8]
    assert heights == [[1.0] * 2, [1.0] * 2, [100.0] * 2, guide]


def test_the_looseness_is_what_was_subtracted():
    model = small_model(2, dtype="float64")
    (row,) = lipschitz_curve(model, [5], num_inputs=2, effort=Effort(restarts=0))
    forms = bounds.closed_form_bounds(model, 5)
    distance = forms.constants.embedding.distance
    for name in ("linear", "c1", "c2", "printed_tight", "printed"):
        log = getattr(forms, name).others.log10_value
        assert row[f"log10_{name}"] == pytest.approx(log - math.log10(distance))
        loose = row[f"log10_{name}"] - math.log10(row["estimate"])
        assert row[f"looseness_{name}"] == pytest.approx(loose)
        assert loose > 0
    saturated = forms.corrected.others.log10_value
    assert row["log10_corrected"] == saturated
    assert row["supremum"] >= row["influence"] * (1 - 1e-9)
    loose = saturated - math.log10(max(row["influence"], row["supremum"]))
    assert row["looseness_corrected"] == pytest.approx(loose)
    assert loose > 0
    assert "log10_causal" not in row


def test_what_has_no_bound_says_why():
    norm = {"layer_norm": "pre", "layer_norm_epsilon": 0.0}
    model = small_model(2, dtype="float64", **norm)
    (row,) = lipschitz_curve(model, [5], num_inputs=1, effort=Effort(restarts=0))
    assert not [name for name in row if name.startswith(("log10", "looseness"))]
    assert len(row["notes"]) == 2
    assert all("epsilon" in note or "ε" in note for note in row["notes"])


def test_looseness_counts_decades():
    assert looseness({"a": 2.0, "b": -1.0}, 0.01) == {"a": 4.0, "b": 1.0}
    assert looseness({"a": 2.0, "b": -math.inf}, 0.0) == {"a": math.inf, "b": math.inf}


def test_lengths_must_increase():
    with pytest.raises(jm.InputError, match="lengths"):
        lipschitz_curve(small_model(), [8, 4])
