"""What `certify_influence` promises: sharpness, digits, the question, refusals."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds.influence import compute_influence
from bounds.lemma5.certificate import Certificate, certify_influence
from tests.bounds.influence.models import scaled_weights
from tests.bounds.lemma5.certificate.models import build, draw_tokens
from tests.written import written


def family(num_layers, scale=0.5, attention=0.5) -> Any:
    """The random family of the sharpness targets: d = 8, H = 2, d_ff = 16."""
    model = jm.random_transformer(
        jax.random.key(0),
        num_layers=num_layers,
        num_heads=2,
        d_model=8,
        d_ff=16,
        vocab_size=2,
        scale=scale,
        dtype="float64",
    )
    return scaled_weights(model, query=attention / scale, key=attention / scale)


def ratios(model, tokens, positions, method="centred"):
    """Certificates over exact influences at some positions."""
    exact = compute_influence(model, tokens, positions=positions)
    found = certify_influence(model, tokens, method=method, positions=positions)
    return found.position_upper[positions] / exact.position_upper[positions]


@pytest.mark.usefixtures("quick_compilation")
def test_one_layer_is_exact():
    model, tokens = family(1), draw_tokens(256, 2)
    exact = compute_influence(model, tokens, method="incremental")
    found = certify_influence(model, tokens)
    np.testing.assert_allclose(found.upper, exact.upper, rtol=1e-12)
    assert (found.position, found.symbol) == (exact.position, exact.symbol)
    assert found.max_upper == np.nanmax(found.upper)
    assert (found.kind, exact.kind) == ("certified", "exact")


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    "layer_norm", ["none", pytest.param("pre", marks=pytest.mark.slow)]
)
def test_two_layers_are_exact_and_hold_fifty_digit_influences(layer_norm):
    model = build({"num_layers": 2, "layer_norm": layer_norm, "final_norm": True})
    tokens = draw_tokens(5)
    config, tensors = written(model)
    exact = reference.influence(
        config,
        tensors,
        tokens,
        include_query=True,
        arithmetic=reference.multiprecision(50),
    )
    found = certify_influence(model, tokens, include_query=True)
    asked = ~np.isnan(exact)
    assert (found.upper[asked] >= exact[asked]).all()
    # What the base pass may be off by grows with every layer.
    assert (found.upper[asked] <= exact[asked] * (1 + 5e-9)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
def test_three_layers_are_within_a_factor_two_of_the_exact_influence():
    found = ratios(family(3), draw_tokens(128, 2), [0, 5, 64, 126])
    assert (found >= 1).all()
    assert (found <= 2).all()


@pytest.mark.slow
@pytest.mark.parametrize(("num_layers", "most"), [(2, 1 + 1e-9), (3, 2)])
def test_long_inputs_are_certified_within_the_same_factors(num_layers, most):
    positions = [0, 5, 700, 1024, 2045]
    found = ratios(family(num_layers), draw_tokens(2048, 2), positions)
    assert (found >= 1 - 1e-9).all()
    assert (found <= most).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_layers", "method"), [(2, "centred"), (3, "centred"), (2, "base")]
)
def test_certificates_shrink_like_one_over_n(num_layers, method):
    model, lengths = family(num_layers), [256, 512, 1024, 2048, 4096]
    upper = []
    for n in lengths:
        tokens = np.resize(draw_tokens(64, 2), n)
        found = certify_influence(
            model, tokens, method=method, positions=[n // 2 - 32 + k for k in range(16)]
        )
        upper.append(found.max_upper)
    slope = np.polyfit(np.log(lengths), np.log(upper), 1)[0]
    assert -1.05 <= slope <= -0.95


@pytest.mark.usefixtures("quick_compilation")
def test_the_question_is_answered_as_asked():
    model, tokens, seen = build({"num_layers": 3, "mask": "future"}), draw_tokens(8), []
    found = certify_influence(
        model,
        tokens,
        query=4,
        positions=[1, 3, 4, 6],
        symbols=[0, 2],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert isinstance(found, Certificate)
    asked = ~np.isnan(found.upper)
    expected = np.zeros((8, 3), bool)
    expected[np.ix_([1, 3, 6], [0, 2])] = True
    expected[np.arange(8), tokens] = False
    np.testing.assert_array_equal(asked, expected)
    # The mask hides position 6 from row 4.
    assert (found.upper[6][asked[6]] == 0).all()
    assert (found.upper[[1, 3]][asked[[1, 3]]] > 0).all()
    assert seen[-1] == (expected.sum(), expected.sum())
    assert (found.query, found.target, found.method) == (4, "activation", "centred")
    assert np.isnan(found.position_upper[[0, 2, 4, 5, 7]]).all()
    assert found.substitutions == expected.sum()


def test_without_layers_only_the_query_has_influence():
    model = build({"num_layers": 0})
    tokens = np.asarray([0, 1, 2])
    for method in ("centred", "base"):
        found = certify_influence(model, tokens, method=method, include_query=True)
        assert (found.upper[:2][~np.isnan(found.upper[:2])] == 0).all()
        table = np.asarray(model.embedding)
        expected = np.linalg.norm(table[:2] - table[2], axis=1)
        np.testing.assert_allclose(found.upper[2, :2], expected, rtol=1e-12)


def cancelling_heads(size):
    """One layer whose two heads write opposite values of a given size."""
    model = build({"num_layers": 1, "position": None})
    attention = model.layers[0].attention
    v, o = attention.value, attention.output
    value = v.at[1].set(v[0]) * size
    output = o.at[:, 2:].set(-o[:, :2])
    bias = (
        None
        if attention.value_bias is None
        else attention.value_bias.at[1].set(attention.value_bias[0])
    )
    attention = dataclasses.replace(
        attention,
        value=value,
        output=output,
        value_bias=bias,
        query=attention.query.at[1].set(attention.query[0]),
        key=attention.key.at[1].set(attention.key[0]),
        query_bias=attention.query_bias.at[1].set(attention.query_bias[0]),
        key_bias=attention.key_bias.at[1].set(attention.key_bias[0]),
    )
    # Rounded apart, so that the heads do not cancel to the last bit.
    attention = dataclasses.replace(
        attention, value=attention.value.at[1].multiply(1 + 2.0**-40)
    )
    layer = dataclasses.replace(model.layers[0], attention=attention)
    return dataclasses.replace(model, layers=(layer,))


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_terms_that_cancel_are_followed(size):
    """The influence is 2^-40 of what each head contributes, and still held closely."""
    model, tokens = cancelling_heads(size), draw_tokens(6)
    config, tensors = written(model)
    exact = reference.influence(
        config, tensors, tokens, arithmetic=reference.multiprecision(50)
    )
    found = certify_influence(model, tokens).upper
    asked = ~np.isnan(exact)
    assert (found[asked] >= exact[asked]).all()
    assert (found[asked] <= exact[asked] * 4).all()


def test_hard_weightings_are_refused():
    model = build({"num_layers": 2, "weighting": ["softmax", "average_hard"]})
    with pytest.raises(jm.InputError, match="layer 1 has the weighting average_hard"):
        certify_influence(model, draw_tokens(4))


@pytest.mark.usefixtures("quick_compilation")
def test_a_layer_norm_without_epsilon_is_refused_where_a_radius_meets_it():
    case = {"layer_norm": "pre", "layer_norm_epsilon": 0.0}
    for options in ({"num_layers": 2}, {"num_layers": 1, "method": "base"}):
        method = options.pop("method", "centred")
        with pytest.raises(jm.InputError, match="norm1 of layer 0 has epsilon = 0"):
            certify_influence(build({**case, **options}), draw_tokens(8), method=method)
    one = build({**case, "num_layers": 1})
    exact = compute_influence(one, draw_tokens(8), method="incremental")
    np.testing.assert_allclose(
        certify_influence(one, draw_tokens(8)).upper, exact.upper, rtol=1e-10
    )


def test_a_bad_question_is_refused_with_its_reason():
    model, tokens = build({"num_classes": None}), draw_tokens(4)
    with pytest.raises(jm.InputError, match="method = 'exact'"):
        certify_influence(model, tokens, method="exact")
    with pytest.raises(jm.InputError, match="no read-out"):
        certify_influence(model, tokens, target="logits")
    with pytest.raises(jm.InputError, match="out of range"):
        certify_influence(model, tokens, query=4)
    with pytest.raises(jm.InputError, match="expected a Transformer"):
        certify_influence(lambda tokens: tokens, tokens)
    with jax.enable_x64(False), pytest.raises(jm.InputError, match="float64"):
        certify_influence(model, tokens)
