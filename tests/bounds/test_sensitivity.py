"""Average sensitivity against closed forms and direct counts."""

import dataclasses
import functools
import itertools
import math

import jax
import numpy as np
import pytest
from matplotlib.collections import LineCollection

import bounds
import jax_models as jm
from bounds import sensitivity
from bounds.influence.targets.kl import KullbackLeibler
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.sensitivity import Sensitivity, SensitivityCurve, as_row
from jax_models.model.transformer import read_logits
from jax_models.programs.logic import majority
from tests.architecture import small_model
from tests.bounds.influence.expect import refused

SHAPE = {"num_heads": 2, "d_model": 8, "d_ff": 16, "mask": "none", "dtype": "float64"}
model_of = functools.partial(small_model, 3, **SHAPE, scale=2.0, num_classes=2)


@jax.jit
def batched(model, inputs):
    """Logits of the last rows: a plain pass for each input."""
    final = jax.vmap(lambda x: jm.forward(model, x)[0][-1])(inputs)
    return read_logits(model, final)


def differences(model, inputs):
    """The second logit of the last row less the first, of every input."""
    values = np.asarray(batched(model, np.asarray(inputs, np.int32)))
    return values[:, 1] - values[:, 0]


def count(model, tokens):
    """Number of positions at which some other symbol changes the sign, by definition."""
    n, symbols = len(tokens), model.vocab_size
    changed = np.tile(tokens, (n, symbols, 1))  # the own symbol changes nothing
    for place, symbol in np.ndindex(n, symbols):
        changed[place, symbol, place] = symbol
    found = differences(model, changed.reshape(-1, n)).reshape(n, symbols) >= 0
    return int((found != (differences(model, [tokens]) >= 0)).any(axis=1).sum())


def mean_count(model, n, symbols=2, classes=(1, 0)):
    """Mean of the count over all inputs: lines of symbols on which signs differ."""
    logits = batched(model, np.array([*itertools.product(range(symbols), repeat=n)]))
    margin = np.asarray(logits[:, classes[0]] - logits[:, classes[1]])
    sign = (margin >= 0).reshape((symbols,) * n)
    lines = sum(np.sum(sign.any(axis) != sign.all(axis)) for axis in range(n))
    return lines * symbols / sign.size


@pytest.mark.parametrize(
    ("preset", "n"),
    # Two layers of one hard head decide PARITY at the length (1 + 1)^2 alone.
    [("parity", 5), ("hard_parity", 4)],
)
def test_every_position_of_parity_is_sensitive(preset, n):
    found = bounds.average_sensitivity(jm.build_preset(preset, dtype="float64"), n)
    assert found.lower == found.upper == found.positions
    assert found.kind == "exact"
    assert found.interval is None
    assert found.inputs == 2**found.positions


def test_both_forms_are_one_where_values_are_plus_and_minus_one():
    model = jm.build_preset("normalised_parity", dtype="float64")
    assert jm.apply_logits(model, [0, 1, 1, 2])[-1] == pytest.approx(1)
    found = bounds.average_sensitivity(model, 5, form="real")
    assert found.lower <= 4 <= found.upper
    assert found.upper - found.lower < 1e-9


def test_samples_that_are_alike_leave_a_share_open():
    # Were more than a share p of the inputs others, three samples would miss them with a
    # probability of (1 - p)^3 < 0.05.
    share = 1 - 0.05 ** (1 / 3)
    low, high = sensitivity._interval(np.full(3, 8.0), np.full(3, 8.0), 64)
    assert low == pytest.approx(8 * (1 - share))
    assert high == pytest.approx(low + 64 * share)


def test_samples_that_differ_have_students_interval():
    counts = np.array([11.0, 13.0, 14.0, 18.0])
    half = 3.182446305 * counts.std(ddof=1) / 2  # 97.5 % of three degrees of freedom
    found = sensitivity._interval(counts, counts, 64)
    np.testing.assert_allclose(found, (14 - half, 14 + half), rtol=1e-8)


def test_an_open_sign_never_narrows_the_interval():
    alike, other = np.zeros(32), np.eye(32)[0]
    low, high = sensitivity._interval(alike, other, 64)
    assert low == 0
    assert high == sensitivity._interval(alike, alike, 64)[1] > 5


def test_majority_has_the_binomial_closed_form():
    # More than half: one symbol decides where k = floor(n/2) are 1, if it is one of the
    # n - k zeros, and where k + 1 are, if it is one of these ones.
    model = jm.compile_formula(majority(), "01", "T", dtype="float64")
    n, k = 8, 4
    expected = 2 * (n - k) * math.comb(n, k) / 2**n
    found = bounds.average_sensitivity(model, n)
    assert found.lower == found.upper == expected
    assert found.kind == "exact"


@pytest.mark.parametrize(("symbols", "n", "classes"), [(2, 10, (1, 0)), (3, 4, (2, 0))])
def test_all_inputs_agree_with_direct_enumeration(symbols, n, classes):
    model = model_of(num_classes=1 + classes[0], vocab_size=symbols)
    target = None if model.classes == 2 else LogitDifference(*classes)
    found = bounds.average_sensitivity(model, n, target=target)
    expected = mean_count(model, n, symbols, classes)
    assert found.lower == found.upper == expected > 0


def test_a_planted_error_is_noticed(monkeypatch):
    model, flips = model_of(), sensitivity._flips
    wrong = lambda ends, lines, _: flips(ends, lines, 0)
    monkeypatch.setattr(sensitivity, "_flips", wrong)
    assert bounds.average_sensitivity(model, 4).lower != mean_count(model, 4)


def test_sampled_inputs_have_the_count_by_definition():
    model, n = model_of(vocab_size=3), 64
    found = bounds.average_sensitivity(model, n, num_inputs=3, seed=5)
    source = sensitivity.sampled_inputs(model, "random", 3, 5)
    expected = [count(model, source.draw(n, k)) for k in range(3)]
    assert found.lower == found.upper == np.mean(expected)
    assert found.interval is not None
    low, high = found.interval
    assert 0 <= low <= found.lower <= high <= n


@pytest.mark.parametrize("listed", [True, False])
def test_the_real_form_is_a_quarter_of_squared_changes(listed, monkeypatch):
    model, n = model_of(scale=0.3), 4
    if not listed:
        monkeypatch.setattr(sensitivity, "ENUMERATED", 1)
    found = bounds.average_sensitivity(model, n, form="real", num_inputs=3)
    source = sensitivity.sampled_inputs(model, "random", 3, 0)
    inputs = [*itertools.product(range(2), repeat=n)]
    if not listed:
        inputs = [source.draw(n, k) for k in range(3)]

    def quarter(x):
        others = differences(model, x ^ np.eye(n, dtype=int))
        return np.sum((differences(model, [x]) - others) ** 2) / 4

    expected = np.mean([quarter(np.array(x)) for x in inputs])
    assert found.lower <= expected <= found.upper
    assert found.upper - found.lower < 1e-9 * expected


@pytest.mark.parametrize("listed", [True, False])
def test_the_real_form_refuses_values_beyond_one(listed, monkeypatch):
    if not listed:
        monkeypatch.setattr(sensitivity, "ENUMERATED", 1)
    with refused(r"values in \[-1, 1\]"):
        bounds.average_sensitivity(model_of(scale=30.0), 4, form="real", num_inputs=4)


def test_a_value_that_is_no_number_is_refused():
    model = model_of()
    huge = model.embedding.at[1].multiply(1e200)
    with refused("value nan at an input"):
        bounds.average_sensitivity(dataclasses.replace(model, embedding=huge), 3)


def test_an_open_sign_makes_an_interval(monkeypatch):
    model, wide = model_of(), sensitivity.scalar_values

    def open_signs(*asked):
        values, radii = wide(*asked)
        return values, np.where(np.arange(len(radii)) == 3, np.inf, radii)

    monkeypatch.setattr(sensitivity, "scalar_values", open_signs)
    found = bounds.average_sensitivity(model, 4)
    assert found.lower < found.upper
    assert found.undecided > 0
    assert found.kind == "enclosure"


@pytest.mark.parametrize(
    ("changed", "asked", "message"),
    [
        ({}, {"form": "complex"}, "form"),
        ({}, {"num_inputs": 1}, "num_inputs"),
        ({}, {"target": "logits"}, "not one number"),
        ({}, {"target": KullbackLeibler()}, "not one number"),
        ({}, {"target": 3}, "target"),
        ({}, {"query": 9}, "query"),
        ({"vocab_size": 3}, {"form": "real"}, "two symbols"),
        ({"vocab_size": 1}, {}, "substitutes one symbol: nothing"),
        ({"num_classes": 3}, {}, "3 logits and no accept rule"),
        ({"num_classes": None}, {}, "no read-out"),
    ],
)
def test_bad_questions_are_refused(changed, asked, message):
    with refused(message):
        bounds.average_sensitivity(model_of(**changed), 4, **asked)


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
    means = [[4, 2], [9, 3], [25, 0], [100, 10]]
    assert any(np.array_equal(x, means) for x in drawn)
    (bars,) = axes.collections
    assert isinstance(bars, LineCollection)
    assert bars.get_segments()[1].tolist() == [[100, 5], [100, 20]]
    assert axes.get_xlabel() == "positions n that are replaced"
    assert axes.get_ylabel() == "average sensitivity (positions)"
