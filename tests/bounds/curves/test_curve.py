"""A bound curve has one row per length: the largest of the inputs there."""

import numpy as np
import pytest

import jax_models as jm
from bounds import bound_curve, compute_influence
from bounds.curves.curve import BoundCurve, plot_curves
from bounds.curves.inputs import sampled_inputs
from bounds.curves.measurement import influence_value, weighting_label
from bounds.store.table import Table
from jax_models.model.reweight import at_length, with_temperature, with_weighting
from tests.architecture import small_model


@pytest.fixture(scope="module")
def model():
    return small_model(dtype="float64")


@pytest.fixture(scope="module")
def curve(model):
    return bound_curve(
        model, [4, 6], inputs="parity", num_inputs=3, seed=2, method="exhaustive"
    )


def measurement(n, index, lower, upper=None, method="exhaustive", **beside):
    ends = {"influence_lower": lower, "influence_upper": upper or lower}
    exact = upper is None
    kind = {"exact": exact, "kind": "exact" if exact else "enclosure"}
    return {"n": n, "input": index, "method": method, **ends, **kind, **beside}


def make_curve(*rows, beyond=()):
    return BoundCurve("softmax", "activation", Table(rows), beyond=Table(beyond))


def test_a_row_is_the_largest_influence_over_the_inputs(model, curve):
    assert list(curve.column("n")) == [4, 6]
    source = sampled_inputs(model, "parity", 3, seed=2)
    for row in curve:
        asked = at_length(model, row["n"])  # of other positions, radii are others
        results = [
            compute_influence(asked, source.draw(row["n"], k), method="exhaustive")
            for k in range(3)
        ]
        best = int(np.argmax([result.max for result in results]))
        assert row["input"] == best
        assert row["influence_lower"] == results[best].max_lower
        assert row["influence_upper"] == results[best].max_upper
        assert (row["position"], row["symbol"]) == (
            results[best].position,
            results[best].symbol,
        )
    assert len(curve.measurements) == 6


def test_a_curve_is_read_by_row_and_shown_in_a_line(curve):
    assert curve[0] == next(iter(curve))
    assert curve[-1]["n"] == 6
    assert repr(curve).startswith("BoundCurve(softmax, activation, n = 4 to 6, 6 meas")
    assert "\n" not in repr(curve)
    assert "no length" in repr(make_curve())
    pytest.importorskip("pandas")
    assert list(curve.to_pandas()["n"]) == [4, 6]


def test_zeros_are_counted_per_length_and_left_out_of_the_fit():
    values = {8: [1.0, 0.0, 0.5], 16: [0.0, 0.0, 0.0], 32: [0.25, 0.125, 0.25]}
    values |= {64: [0.0, 0.1, 0.0], 128: [0.05, 0.0, 0.2]}
    curve = make_curve(
        *(
            measurement(n, index, value)
            for n, some in values.items()
            for index, value in enumerate(some)
        )
    )
    assert list(curve.column("zeros")) == [1, 3, 0, 2, 1]
    assert list(curve.column("influence_upper")) == [1.0, 0.0, 0.25, 0.1, 0.2]
    assert (curve.fit.used, curve.fit.zeros, curve.fit.lengths) == (8, 7, 4)
    means = [np.sqrt(0.5), np.cbrt(0.25 * 0.125 * 0.25), 0.1, np.sqrt(0.01)]
    slope, _ = np.polyfit(np.log([8, 32, 64, 128]), np.log(means), 1)
    assert curve.fit.exponent == pytest.approx(-slope)


@pytest.mark.parametrize(
    ("lower", "upper", "method", "value"),
    [
        (0.5, 0.75, "exhaustive", 0.625),  # the middle of the rounding radius
        (0.0, 1e-13, "incremental", 0.0),  # not told apart from no change
        (0.5, 0.75, "screened", 0.75),  # what was screened counts as its most
        (0.0, 0.75, "screened", 0.75),
    ],
)
def test_what_stands_for_an_enclosure(lower, upper, method, value):
    assert influence_value(measurement(4, 0, lower, upper, method)) == value


def test_a_curve_is_written_and_drawn(curve, tmp_path):
    curve.to_csv(tmp_path / "curve.csv")
    header, *lines = (tmp_path / "curve.csv").read_text().splitlines()
    assert header.startswith("n,input,influence_lower,influence_upper")
    assert len(lines) == 2
    curve.plot(tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text()
    assert "softmax" in drawn
    assert "exponent" not in drawn  # two lengths tell none
    assert "activation units" in drawn
    with pytest.raises(jm.InputError, match="png, pdf, svg"):
        curve.plot(tmp_path / "curve.gif")


def test_several_curves_share_a_figure(curve):
    figure = plot_curves([curve, make_curve(measurement(4, 0, 0.0))])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 2
    assert "1 of 1 zero" in labels[1]


def test_the_legend_has_the_exponent_that_is_told():
    falls = make_curve(*(measurement(n, 0, 1 / n) for n in (4, 8, 16, 32)))
    jumps = make_curve(*(measurement(n, 0, 10.0 ** (n % 3)) for n in (4, 8, 16, 32)))
    labels = [x.get_text() for x in plot_curves([falls, jumps]).legends[0].get_texts()]
    assert labels == ["softmax (exponent 1.00)", "softmax"]


@pytest.mark.parametrize(
    ("lengths", "complaint"),
    [
        ([], "no lengths"),
        ([0, 4], r"lengths\[0\] = 0; expected an integer from 1"),
        ([4, 4], "4 follows 4"),
        ([8, 4], "4 follows 8"),
    ],
)
def test_lengths_that_do_not_increase_are_refused(model, lengths, complaint):
    with pytest.raises(jm.InputError, match=complaint):
        bound_curve(model, lengths)


def test_a_label_names_weighting_and_temperature(model):
    log = jm.InverseLogTemperature(2.0)
    assert weighting_label(model) == "softmax"
    assert weighting_label(with_weighting(model, "average_hard")) == "average_hard"
    assert weighting_label(with_temperature(model, log)) == "softmax@inverse_log:2"
