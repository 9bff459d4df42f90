"""A certificate is the smaller of the input's own and the closed form for all inputs."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence.build import build_request
from bounds.lemma5.certificate import certify
from bounds.lemma5.certificate.certify import bound_all_inputs
from tests.architecture import with_architecture

pytestmark = pytest.mark.usefixtures("quick_compilation")
TOKENS = np.array([0, 1, 1, 0, 1, 0, 2])


def build(scale=1.0, **changed):
    shape = {"num_layers": 2, "num_heads": 2, "d_model": 4, "d_ff": 8, "vocab_size": 3}
    shape |= {"mask": "future", "dtype": "float64", "scale": scale}
    return jm.random_transformer(
        jax.random.key(0), **with_architecture(**(shape | changed))
    )


def closed_form(model, **asked):
    return bounds.closed_form_bounds(model, len(TOKENS), **asked).corrected


CASES = [
    (0.5, "future", "activation", "centred"),
    (30.0, "future", "logits", "centred"),
    (1e4, "future", "logits", "base"),
    (1e4, "none", "activation", "base"),
]


@pytest.mark.parametrize(("scale", "mask", "target", "method"), CASES)
def test_the_smaller_of_both_is_at_least_the_influence(scale, mask, target, method):
    model = build(scale, mask=mask, num_classes=2)
    asked = {"target": target, "query": 3, "include_query": True}
    found = bounds.certify_influence(model, TOKENS, method=method, **asked)
    exact = bounds.compute_influence(model, TOKENS, method="exhaustive", **asked)
    forms = closed_form(model, target=target, query=3)
    at_query = np.arange(len(TOKENS))[:, None] == 3
    uniform = np.where(at_query, forms.own.value, forms.others.value)
    there = ~np.isnan(exact.lower)
    np.testing.assert_array_equal(
        found.upper[there], np.minimum(found.input_upper, uniform)[there]
    )
    assert (found.upper >= exact.lower)[there].all()
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
        bounds.certify_influence(build(scale), TOKENS) for scale in (0.5, 1e4)
    )
    assert (small.basis, large.basis) == ("this input", "all inputs")
    assert "Theorem C" not in small.source
    assert "Theorem C" in large.source
    assert set(small.hypotheses) < set(large.hypotheses)
    assert large.kind == "certified"


def test_a_symbol_that_is_not_substitutable_has_the_input_alone():
    """D of the closed form is the largest distance among `substitutable`."""
    model = build(1e4)
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
    request = build_request(build(1e4), TOKENS[:1], include_query=True)
    alone = np.full(len(request.pairs), np.inf)
    found, form = bound_all_inputs(request, alone)
    assert found is alone
    assert form is None
    monkeypatch.setattr(certify, "MOST_DIFFERENCES", 8)
    found = bounds.certify_influence(build(1e4), TOKENS)
    assert found.basis == "this input"
    assert found.max_upper == np.inf


def test_a_closed_form_that_is_too_small_is_noticed(monkeypatch):
    """Planted: a thousandth of the bound."""
    model = build(1e4)
    asked = {"query": 3, "include_query": True}
    exact = bounds.compute_influence(model, TOKENS, method="exhaustive", **asked)

    def holds():
        found = bounds.certify_influence(model, TOKENS, **asked)
        return (found.upper >= exact.lower)[~np.isnan(exact.lower)].all()

    assert holds()

    def wrong(request, alone):
        return 1e-3 * bound_all_inputs(request, alone)[0], None

    monkeypatch.setattr(certify, "bound_all_inputs", wrong)
    assert not holds()


def test_a_curve_takes_the_smaller():
    curve = bounds.bound_curve(
        build(1e4), [len(TOKENS)], inputs="random", bounds=["certified", "closed_forms"]
    )
    for row in curve:
        assert math.isfinite(row["certified"])
        assert math.log10(row["certified"]) == pytest.approx(row["log10_corrected"])


def test_float32_models_are_bounded_as_the_same_real_numbers():
    single = build(1e4, dtype="float32")
    double = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), single)
    np.testing.assert_array_equal(
        bounds.certify_influence(single, TOKENS).upper,
        bounds.certify_influence(double, TOKENS).upper,
    )
