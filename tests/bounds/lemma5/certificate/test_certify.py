"""What `certify_influence` promises: sharpness, digits, the question, refusals."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence import compute_influence
from bounds.influence.build import build_request
from bounds.lemma5.certificate import Certificate, certify, certify_influence
from bounds.lemma5.certificate.certify import bound_all_inputs
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.pytree import pytree
from tests.architecture import small_model, with_attention
from tests.bounds.influence.models import scaled_weights
from tests.bounds.lemma5.certificate.one_layer import build, draw_tokens
from tests.written import written


def family(num_layers, scale=0.5, attention=0.5) -> Any:
    """The random family of the sharpness targets: d = 8, H = 2, d_ff = 16."""
    model = small_model(
        num_layers=num_layers,
        num_heads=2,
        d_model=8,
        d_ff=16,
        scale=scale,
        dtype="float64",
    )
    return scaled_weights(model, query=attention / scale, key=attention / scale)


def ratios(model, tokens, positions, method="centred"):
    """Certificates over exact influences at some positions."""
    exact = compute_influence(model, tokens, positions=positions, rounding="none")
    found = certify_influence(model, tokens, method=method, positions=positions)
    return found.position_upper[positions] / exact.position_upper[positions]


def test_one_layer_is_exact():
    model, tokens = family(1), draw_tokens(256, 2)
    exact = compute_influence(model, tokens, method="incremental")
    found = certify_influence(model, tokens)
    np.testing.assert_allclose(found.upper, exact.upper, rtol=1e-12)
    assert (found.position, found.symbol) == (exact.position, exact.symbol)
    assert found.max_upper == np.nanmax(found.upper)
    assert (found.kind, exact.kind) == ("certified", "exact")


def assert_close(model, tokens, most, **options):
    """Certificates are at least the influences of fifty digits, at most a multiple."""
    digits = reference.multiprecision(50)
    exact = reference.influence(*written(model), tokens, arithmetic=digits, **options)
    found = certify_influence(model, tokens, **options).upper
    asked = ~np.isnan(exact)
    assert (found[asked] >= exact[asked]).all()
    assert (found[asked] <= exact[asked] * most).all()


@pytest.mark.parametrize("layer_norm", ["none", "pre"])
def test_two_layers_are_exact_and_hold_fifty_digit_influences(layer_norm):
    model = build({"num_layers": 2, "layer_norm": layer_norm, "final_norm": True})
    tokens = draw_tokens(5)
    # What the base pass may be off by grows with every layer.
    assert_close(model, tokens, 1 + 5e-9, include_query=True)


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


def test_the_question_is_answered_as_asked():
    model, tokens = build({"num_layers": 3, "mask": "future"}), draw_tokens(8)
    found = certify_influence(
        model, tokens, query=4, positions=[1, 3, 4, 6], symbols=[0, 2]
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
    names = ("query", "key", "value", "query_bias", "key_bias", "value_bias")
    parts = {x: getattr(attention, x) for x in names}
    parts = {name: x.at[1].set(x[0]) for name, x in parts.items()}
    # Rounded apart, so that the heads do not cancel to the last bit.
    parts["value"] = (size * parts["value"]).at[1].multiply(1 + 2.0**-40)
    output = attention.output
    return with_attention(
        model, {**parts, "output": output.at[:, 2:].set(-output[:, :2])}
    )


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_terms_that_cancel_are_followed(size):
    """The influence is 2^-40 of what each head contributes, and still held closely."""
    assert_close(cancelling_heads(size), draw_tokens(6), 4)


def test_a_layer_norm_without_epsilon_is_refused_where_a_radius_meets_it():
    case = {"layer_norm": "pre", "layer_norm_epsilon": 0.0}
    for options in ({"num_layers": 2}, {"num_layers": 1, "method": "base"}):
        method = options.pop("method", "centred")
        with pytest.raises(jm.InputError, match="norm1 of layer 0 has epsilon = 0"):
            certify_influence(build({**case, **options}), draw_tokens(8), method=method)
    one = build({**case, "num_layers": 1})
    asked: Any = {"method": "incremental", "rounding": "none"}
    exact = compute_influence(one, draw_tokens(8), **asked)
    np.testing.assert_allclose(
        certify_influence(one, draw_tokens(8)).upper, exact.upper, rtol=1e-10
    )


@pytree
class Own(Layer):
    """A layer whose program could be anything."""


@pytree
class OwnBlock(FeedForward):
    """A feed-forward block whose steps could be anything."""


def test_a_bad_question_is_refused_with_its_reason():
    model, tokens = build({"num_classes": None}), draw_tokens(4)
    own = tuple(Own(**vars(x)) for x in model.layers)
    block = OwnBlock(**vars(model.layers[0].feed_forward))
    blocks = (dataclasses.replace(model.layers[0], feed_forward=block),)
    hard = build({"num_layers": 2, "weighting": ["softmax", "average_hard"]})
    for asked, options, message in (
        (model, {"method": "exact"}, "method = 'exact'"),
        (model, {"target": "logits"}, "no read-out"),
        (model, {"query": 4}, "out of range"),
        (lambda tokens: tokens, {}, "expected a Transformer"),
        (hard, {}, "layer 1 has the weighting average_hard"),
        (dataclasses.replace(model, layers=own), {}, "a program of its own, Own,"),
        (dataclasses.replace(model, layers=blocks), {}, "of its own, OwnBlock,"),
    ):
        with pytest.raises(jm.InputError, match=message):
            certify_influence(asked, tokens, **options)
    with jax.enable_x64(False), pytest.raises(jm.InputError, match="float64"):
        certify_influence(model, tokens)


TOKENS = np.array([0, 1, 1, 0, 1, 0, 2])


def scaled_model(scale=1.0, **changed):
    return build({"mask": "future", "scale": scale, "num_classes": None, **changed})


def closed_form(model, **asked):
    return bounds.closed_form_bounds(model, len(TOKENS), **asked).corrected


def influences(model, asked):
    """Of every substitution, less than rounding adds to them, 1e-12 of each."""
    how: Any = {"method": "exhaustive", "rounding": "none", **asked}
    return (1 - 1e-12) * bounds.compute_influence(model, TOKENS, **how).upper


CASES = [
    (0.5, "future", "activation", "centred"),
    (30.0, "future", "logits", "centred"),
    (1e4, "future", "logits", "base"),
    (1e4, "none", "activation", "base"),
]


@pytest.mark.parametrize(("scale", "mask", "target", "method"), CASES)
def test_the_smaller_of_both_is_at_least_the_influence(scale, mask, target, method):
    model = scaled_model(scale, mask=mask, num_classes=2)
    asked = {"target": target, "query": 3, "include_query": True}
    found = bounds.certify_influence(model, TOKENS, method=method, **asked)
    exact = influences(model, asked)
    forms = closed_form(model, target=target, query=3)
    at_query = np.arange(len(TOKENS))[:, None] == 3
    uniform = np.where(at_query, forms.own.value, forms.others.value)
    there = ~np.isnan(exact)
    np.testing.assert_array_equal(
        found.upper[there], np.minimum(found.input_upper, uniform)[there]
    )
    assert (found.upper >= exact)[there].all()
    by_all = found.upper[found.position, found.symbol] < found.input_upper.max(
        where=there, initial=0.0
    )
    assert found.basis == ("all inputs" if by_all else "this input")
    assert f"basis='{found.basis}'" in repr(found)
    if scale == 1e4 and mask == "future":
        assert found.basis == "all inputs"
        assert found.max_upper < np.inf


def test_what_the_maximum_rests_on_is_among_source_and_hypotheses():
    small, large = (
        bounds.certify_influence(scaled_model(scale), TOKENS) for scale in (0.5, 1e4)
    )
    assert (small.basis, large.basis) == ("this input", "all inputs")
    assert "Theorem C" not in small.source
    assert "Theorem C" in large.source
    assert set(small.hypotheses) < set(large.hypotheses)
    assert large.kind == "certified"


def test_a_symbol_that_is_not_substitutable_has_the_input_alone():
    """D of the closed form is the largest distance among `substitutable`."""
    model = scaled_model(1e4)
    far = model.embedding.at[2].multiply(1e6)
    listed = dataclasses.replace(model, embedding=far, substitutable=(0, 1))
    found = bounds.certify_influence(listed, TOKENS, symbols=(0, 1, 2), query=-2)
    bounded = found.upper < found.input_upper
    two, asked = TOKENS == 2, ~np.isnan(found.upper)
    assert not bounded[:, 2].any()
    assert not bounded[two].any()
    assert bounded[asked & (np.arange(3) < 2) & ~two[:, None]].all()


def test_where_closed_forms_are_refused_or_too_costly_the_input_stands_alone(
    monkeypatch,
):
    request = build_request(scaled_model(1e4), TOKENS[:1], include_query=True)
    alone = np.full(len(request.pairs), np.inf)
    found, form = bound_all_inputs(request, alone)
    assert found is alone
    assert form is None
    monkeypatch.setattr(certify, "MOST_DIFFERENCES", 8)
    found = bounds.certify_influence(scaled_model(1e4), TOKENS)
    assert found.basis == "this input"
    assert found.max_upper == np.inf


def test_a_closed_form_that_is_too_small_is_noticed(monkeypatch):
    """Planted: a thousandth of the bound."""
    model = scaled_model(1e4)
    asked = {"query": 3, "include_query": True}
    exact = influences(model, asked)

    def holds():
        found = bounds.certify_influence(model, TOKENS, **asked)
        return (found.upper >= exact)[~np.isnan(exact)].all()

    assert holds()

    def wrong(request, alone):
        return 1e-3 * bound_all_inputs(request, alone)[0], None

    monkeypatch.setattr(certify, "bound_all_inputs", wrong)
    assert not holds()


def test_float32_models_are_bounded_as_the_same_real_numbers():
    single = scaled_model(1e4, dtype="float32")
    double = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), single)
    np.testing.assert_array_equal(
        bounds.certify_influence(single, TOKENS).upper,
        bounds.certify_influence(double, TOKENS).upper,
    )
