"""Certificates hold when one tensor of the weights is times 1e-300 to 1e300.

The truth is of the stored weights, in 700 digits: a change of 1e-300 beside numbers of
1e300 has all of its own. One or two layers, with and without norms.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.lemma5.certificate import base_pass, certify_influence, output
from tests.bounds.lemma5.certificate.cancelling import model, quiet

TOKENS = np.array([0, 1, 2])
DIGITS = reference.multiprecision(700)
METHODS = ("centred", "base")
SIZES = [1e2, 1e4, 1e8, 1e12, 1e50, 1e103, 1e130, 1e150, 1e160, 1e200, 1e250, 1e300]
FACTORS = SIZES + [1 / size for size in SIZES]


@pytest.fixture(scope="module", autouse=True)
def compiled(quick_compilation):
    """All models of one shape share their programs."""


def drawn(num_layers, layer_norm, final_norm, seed=3, **options):
    """Configuration and tensors."""
    config, tensors = quiet(
        seed,
        num_layers=num_layers,
        layer_norm=layer_norm,
        final_norm=final_norm,
        **options,
    )
    del config["final_norm"]
    return config, tensors


def times(tensors, name, factor):
    """The tensors with one of them times a factor; None where it overflows."""
    with np.errstate(over="ignore"):
        scaled = {**tensors, name: tensors[name] * factor}
    return scaled if np.isfinite(scaled[name]).all() else None


def missed(config, tensors, methods=METHODS):
    """Certified bounds, and those below the truth, with it: {method: ...}."""
    exact = reference.influence(
        config, tensors, TOKENS, include_query=True, arithmetic=DIGITS
    )
    asked, built, found = ~np.isnan(exact), model(config, tensors), {}
    for method in methods:
        said = certify_influence(built, TOKENS, method=method, include_query=True).upper
        assert (np.isnan(said) == ~asked).all()
        below = said[asked] < exact[asked]
        found[method] = list(zip(said[asked][below], exact[asked][below], strict=True))
    return found


def assert_holds(config, tensors, name, factor):
    scaled = times(tensors, name, factor)
    if scaled is not None:
        found = missed(config, scaled)
        assert not any(found.values()), (name, factor, found)


# Below the truth, as first computed: 0, or the centre alone.
ONCE_MISSED = [
    ("none", "attention.value", 1e12),
    ("none", "attention.query", 1e150),
    ("none", "ffn.w2", 1e300),
    ("pre", "attention.query", 1e150),
    ("pre", "attention.output", 1e150),
    ("pre", "attention.value", 1e300),
    ("post", "attention.query", 1e150),
    ("post", "ffn.w2", 1e150),
    ("post", "attention.value", 1e300),
]


@pytest.mark.parametrize(("layer_norm", "name", "factor"), ONCE_MISSED)
def test_a_radius_that_is_no_number_certifies_nothing(layer_norm, name, factor):
    config, tensors = drawn(2, layer_norm, True)
    for depth in range(2):
        assert_holds(config, tensors, f"layers.{depth}.{name}", factor)


def kinds():
    """Every kind of model there is a program for."""
    for layers, norm, final in itertools.product(
        (1, 2), ("none", "pre", "post"), (False, True)
    ):
        yield layers, norm, final, {}
    yield 2, "none", True, {"score": "additive"}
    yield 2, "pre", True, {"score": "additive", "activation": "gelu"}


def assert_sampled(kind, count, seed):
    """Some pairs of a tensor and a factor."""
    layers, norm, final, options = kind
    config, tensors = drawn(layers, norm, final, **options)
    pairs = list(itertools.product(tensors, FACTORS))
    np.random.default_rng(seed).shuffle(pairs)
    for name, factor in pairs[:count]:
        assert_holds(config, tensors, name, float(factor))


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_no_certificate_is_below_the_truth_of_some_scaled_weights(norm):
    assert_sampled((2, norm, True, {}), 5, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(kinds()), ids=str)
def test_no_certificate_is_below_the_truth_of_scaled_weights(kind):
    assert_sampled(kind, 100, seed=0)


def test_what_a_norm_lets_through_is_certified_whatever_enters():
    """The last layer's query reads numbers that overflowed; its output is bounded."""
    config, tensors = drawn(2, "none", True)
    scaled = times(tensors, "layers.0.ffn.w2", 1e300)
    assert scaled is not None
    for method in METHODS:
        found = certify_influence(model(config, scaled), TOKENS, method=method)
        assert 4 <= found.max_upper <= 4.05  # two outputs of length 2
        assert found.uncertified == 0
    without = {k: x for k, x in scaled.items() if "final_norm" not in k}
    for method in METHODS:
        found = certify_influence(model(config, without), TOKENS, method=method)
        assert np.isposinf(found.input_upper).sum() == found.substitutions == 4
        assert found.basis == "all inputs"


def test_a_zero_in_place_of_what_is_no_number_is_seen(monkeypatch):
    """The comparison that was, where the radius may be NaN: the oracle tells."""
    config, tensors = drawn(2, "pre", True)
    scaled = times(tensors, "layers.0.attention.query", 1e150)
    monkeypatch.setattr(
        base_pass, "times", lambda gain, radius: gain * radius * jnp.nan
    )
    monkeypatch.setattr(
        output, "times", lambda gain, radius: jnp.where(radius > 0, gain * radius, 0.0)
    )
    planted = lambda *args: output.certified_norms(*args)  # a program of its own
    monkeypatch.setattr(base_pass, "_finish", jax.jit(planted, static_argnums=1))
    assert missed(config, scaled, ("base",))["base"]
