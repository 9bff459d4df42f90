"""A simulation certifies what its twin then does, for every kind of model it accepts."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.curves.inputs import GivenInputs
from bounds.simulation import simulate
from bounds.simulation.certificate import certified_error
from bounds.simulation.compute import break_ties, needs_tie_breaking
from bounds.simulation.measure import measure_hard_model
from bounds.simulation.result import final_activations, tempered_twin
from tests.architecture import small_model, with_attention
from tests.bounds.simulation.networks import (
    INPUTS,
    draw_model,
    draw_networks,
    edit_heads,
    wide_cell,
)

LEFT, RIGHT = jm.LeftmostHardmax(), jm.RightmostHardmax()


def random_model(seed, *, mask="future", score="scaled_dot_product", activation="relu"):
    """Two layers of two average-hard heads with biases and output matrices, n <= 6."""
    normal = np.random.default_rng(seed).normal
    gaussian = lambda *shape: jnp.asarray(normal(0, 0.5, shape))
    return draw_model(gaussian, 2, 3, 5, activation, mask=mask, score=score)


def outputs(model):
    return np.asarray(final_activations(model, jnp.asarray(INPUTS, jnp.int32))[0])


def hidden_ties(weighting, mask, layers=2):
    """A unique-hard network with ties in some layer, and what was measured of it."""
    networks = draw_networks(1, 8, layers, ties=True)
    for index in range(networks.count):
        model = with_attention(networks.model(index, weighting), {"mask": mask})
        measure = measure_hard_model(model, INPUTS)
        if needs_tie_breaking(measure):
            return model, measure
    raise AssertionError("no network has ties")


@pytest.mark.parametrize(
    ("weighting", "mask", "layers"),
    [
        (RIGHT, "future", 1),
        (LEFT, "none", 2),
        (RIGHT, "future", 2),
        (LEFT, "past", 2),
        (RIGHT, "strict_past", 2),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_tie_breaking_keeps_every_output_of_the_hard_model(weighting, mask, layers):
    model, measure = hidden_ties(weighting, mask, layers)
    assert needs_tie_breaking(measure)
    tieless = break_ties(model, measure)
    found = measure_hard_model(tieless, INPUTS)
    assert not found.tied_rows
    before, after = outputs(model), outputs(tieless)
    np.testing.assert_allclose(after[..., :-1], before, rtol=0, atol=1e-12)
    place = np.arange(1, INPUTS.shape[1] + 1) / INPUTS.shape[1]
    assert (after[..., -1] == place).all()
    for old, new in zip(measure.heads, found.heads, strict=True):
        # Coefficients are rounded down to powers of two, which halves them at most.
        assert new.gap >= min(old.gap, 1) / (2 * INPUTS.shape[1]) * (1 - 1e-9)
    # A term of the other sign chooses other positions.
    wrong = with_attention(tieless, lambda x: {"query_bias": -x.query_bias})
    assert np.abs(outputs(wrong)[..., :-1] - before).max() > 0.01


@pytest.mark.slow
def test_a_unique_hard_model_with_ties_is_simulated_through_its_tieless_form():
    model, _ = hidden_ties(LEFT, "none")
    found = simulate(model, 5, epsilon=0.01, sweep=True)
    assert found.all_inputs
    assert found.ties > 0
    assert found.measured.tied_rows == 0
    assert found.theorem == "26"
    formula, certificate = found.error_formula, found.error_certificate
    assert formula is not None
    assert certificate is not None
    assert formula <= certificate <= found.certify(found.temperature or 0) <= 0.01
    assert any("tie-breaking term" in note for note in found.notes)
    # Without it no temperature helps: softmax shares what the hard head gives to one.
    assert certified_error(found.measured_given, 1e-9) > 0.01
    assert (found.errors <= found.bounds + 1e-12).all()
    assert found.errors[-1] > 0.01


CASES = [
    {},
    {"mask": "strict_past", "score": "dot_product"},
    {"mask": "none", "activation": "gelu"},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES, ids=str)
def test_measured_errors_stay_below_the_certified_ones(options):
    model = random_model(0, **options)
    found = simulate(model, 5, sweep=True)
    assert found.temperature is not None
    assert found.certify(found.temperature) == found.bound
    assert 0 < (found.bound or 0) <= 0.01
    # 1e-12: what float64 adds to activations of about 10.
    assert (found.errors <= found.bounds + 1e-12).all()
    assert found.error_certificate is not None
    assert found.error_certificate <= 0.01
    assert found.errors[-1] > 0.01
    assert (found.theorem is None) == ("activation" in options)
    row = found.row()
    assert row["heads"] == "tieless,tieless;tieless,tieless"
    assert row["inputs"] == 32


def test_the_twin_shares_every_parameter():
    model = random_model(1)
    twin = tempered_twin(model, 0.25)
    for one, two in zip(model.layers, twin.layers, strict=True):
        assert two.attention.weighting.name == "softmax"
        assert two.attention.temperature == jm.ConstantTemperature(0.25)
        assert two.attention.query is one.attention.query
        assert two.feed_forward is one.feed_forward


@pytest.fixture(scope="module")
def of_two_inputs():
    """The uniform head of PARITY on two given inputs."""
    model = jm.build_preset("average_parity", dtype="float64")
    return simulate(model, 4, inputs=GivenInputs("two", (INPUTS[3], INPUTS[31])))


def test_given_inputs_are_certified_alone(of_two_inputs):
    found = of_two_inputs
    assert not found.all_inputs
    assert found.measured.num_inputs == 2
    assert any("certified for 2 given inputs" in note for note in found.notes)
    assert found.gap == np.inf
    assert found.row()["gap"] is None
    assert found.bound == 0


def test_without_a_certificate_the_twin_has_no_temperature_of_its_own(of_two_inputs):
    found = dataclasses.replace(
        of_two_inputs, temperature=None, bound=None, error_certificate=None
    )
    assert "no temperature is certified for this error" in found.notes
    with pytest.raises(jm.InputError, match="no temperature is certified"):
        found.twin()
    assert found.twin(0.5).layers[0].attention.weighting.name == "softmax"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"weighting": "softmax"}, "layers.0 has softmax attention"),
        ({"final_norm": True}, "final_norm"),
        ({"layer_norm": "pre"}, "layers.0 has a LayerNorm"),
        ({"combine": "concat"}, "layers.0 concatenates"),
        ({"num_layers": 0}, "no layers"),
        ({"score": "additive"}, "layers.0 has additive scores"),
    ],
    ids=str,
)
def test_what_is_not_proved_is_refused(options, complaint):
    options = {"weighting": "average_hard", "dtype": "float64", **options}
    with pytest.raises(jm.InputError, match=complaint):
        simulate(small_model(**options), 4)


def test_an_error_that_makes_no_sense_is_refused():
    with pytest.raises(jm.InputError, match="epsilon = 0"):
        simulate(random_model(0), 4, epsilon=0)
    with pytest.raises(jm.InputError, match="position table"):
        simulate(random_model(0), 7)


def test_more_inputs_than_the_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr("jax_models.run.device_memory.host_bytes", lambda: 2**30)
    with pytest.raises(jm.InputError, match="inputs of length 30, all there are"):
        simulate(jm.build_preset("ones", dtype="float64"), 30, budget=2**31 - 1)


def test_ties_that_are_too_far_apart_for_the_term_are_refused():
    model, measure = hidden_ties(LEFT, "none")
    wide = edit_heads(measure, lambda head: dataclasses.replace(head, spread=1.0))
    with pytest.raises(jm.InputError, match="tie-breaking term has steps"):
        break_ties(model, wide)


def test_ties_of_a_wide_cell_have_a_certificate_and_no_theorem():
    found = simulate(wide_cell(), 4)
    assert found.measured.spread == pytest.approx(0.25)
    assert found.theorem is None
    assert found.error_formula is None
    assert (found.error_certificate or 0) <= (found.bound or 0) <= 0.01
    assert any("Theorem 26-T does not apply" in note for note in found.notes)


def ones_error(length, temperature):
    """Of softmax on 1^(n-1) 0 by the sum of its odds, where the model reads the 0.

    Scores are -j/n at the ones j < n and 1 - n/n at the 0, after the tie-breaking term.
    """
    odds = math.fsum(math.exp(-j / length / temperature) for j in range(1, length))
    return odds / (1 + odds)


def test_tokens_are_the_only_inputs_considered():
    model, n = jm.build_preset("ones", dtype="float64"), 8
    rows = np.ones((2, n), int)
    rows[1, -1] = 0
    found = simulate(model, rows, sweep=True)
    same = simulate(model, n, inputs=GivenInputs("tokens", tuple(rows)), sweep=True)
    assert found.row() == same.row()
    assert found.measured_on == "2 given inputs (tokens)"
    assert not found.all_inputs
    assert found.error_certificate == pytest.approx(ones_error(n, found.temperature))
    for tau, error, bound in zip(
        found.temperatures, found.errors, found.bounds, strict=True
    ):
        assert error == pytest.approx(ones_error(n, tau), rel=1e-9)
        assert error <= bound
    one = simulate(model, rows[1].tolist())
    assert one.length == n
    assert one.num_run == 1
    assert one.measured_on == "1 given input (tokens)"


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([], "the empty word"),
        ([[[0]]], r"shape \(1, 1, 1\); expected integers"),
        ([0.5], "float64 .*expected integers"),
        ([[0, 1], [1]], "expected an array"),
        ([0, 2], "token 2 at position 1 is outside the model's vocabulary"),
        ([[0, 1], [-1, 0]], "token -1 at position 0"),
        ("01", "length n = '01'"),
        (None, "length n = None"),
    ],
    ids=str,
)
def test_tokens_that_are_none_are_one_clear_line(tokens, complaint):
    with pytest.raises(jm.InputError, match=complaint) as caught:
        simulate(jm.build_preset("ones", dtype="float64"), tokens)
    assert "\n" not in str(caught.value)
