"""Pieces of attention of version 2: each method does them, or refuses them by name."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.all_inputs.supremum import exact_supremum
from bounds.restriction.checker import check_certificate
from jax_models.format.build import build_model
from jax_models.format.config import decode_config
from jax_models.model.pytree import in_bytes
from jax_models.model.transformer import embed
from jax_models.run.differentiable import forward_embeddings
from tests.bounds.attention_pieces import PIECES, brute_force, model_of, refusal
from tests.bounds.influence.models import TOKENS
from tests.written import written

pytestmark = pytest.mark.usefixtures("quick_compilation")

slow = pytest.mark.slow
pieces = pytest.mark.parametrize("piece", PIECES)


@pieces
def test_the_forward_pass_is_the_reference(piece):
    model = model_of(piece, num_layers=2)
    config, tensors = written(model)
    expected = reference.forward(config, tensors, TOKENS)
    np.testing.assert_allclose(
        jm.apply(model, TOKENS), expected, rtol=1e-12, atol=1e-13
    )
    rows = embed(model, jnp.asarray(TOKENS))
    found = jax.jit(forward_embeddings)(model, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@slow
@pieces
def test_the_forward_pass_over_devices_is_that_of_one(piece):
    model = model_of(piece)
    shared = jm.apply(model, TOKENS, mesh=jm.device_mesh(3))
    alone = jm.apply(model, TOKENS)
    np.testing.assert_allclose(shared, alone, rtol=1e-12, atol=1e-13)


def assert_holds(found, expected, relative=1e-10):
    """Brute force is in the enclosure but for its own rounding, and the radius is small."""
    asked = ~np.isnan(expected)
    np.testing.assert_array_equal(~np.isnan(found.upper), asked)
    slack = 1e-12 + relative * expected
    assert (expected >= found.lower - slack)[asked].all()
    assert (expected <= found.upper + slack)[asked].all()
    assert (found.upper - found.lower <= 1e-9)[asked].all()


FAST = [
    ("exhaustive", "softmax", 2),
    ("incremental", "softmax", 2),
    ("incremental", "softmax", 3),
]
SLOW_TO_COMPILE = [
    ("exhaustive", "average_hard", 3),
    ("incremental", "softmax", 1),
    ("incremental", "average_hard", 2),
    ("incremental", "leftmost_hard", 3),
]


@pytest.mark.parametrize(
    ("method", "weighting", "num_layers"),
    [*FAST, *(pytest.param(*case, marks=slow) for case in SLOW_TO_COMPILE)],
)
@pieces
def test_influences_are_those_of_brute_force(piece, method, weighting, num_layers):
    options = {"weighting": weighting, "num_layers": num_layers}
    expected = brute_force(piece, **options)
    assert np.nanmax(expected) > 1e-3
    found = bounds.compute_influence(
        model_of(piece, **options), TOKENS, method=method, include_query=True
    )
    assert found.exact
    assert_holds(found, expected)


@slow
@pytest.mark.parametrize("method", ["exhaustive", "incremental"])
@pieces
def test_radii_hold_against_many_digits(piece, method):
    model = model_of(piece, scale=2.0, biases=False)
    config, tensors = written(model)
    tokens, digits = TOKENS[:5], reference.multiprecision(40)
    expected = reference.influence(config, tensors, tokens, arithmetic=digits)
    found = bounds.compute_influence(model, tokens, method=method)
    asked = ~np.isnan(expected)
    assert (found.lower <= expected)[asked].all()
    assert (expected <= found.upper)[asked].all()


@slow
@pieces
def test_float32_is_enclosed_too(piece):
    model = model_of(piece, dtype="float32")
    config, tensors = written(model)
    expected = reference.influence(config, tensors, TOKENS)
    found = bounds.compute_influence(model, TOKENS, method="incremental")
    asked = ~np.isnan(expected)
    assert (found.lower <= expected)[asked].all()
    assert (expected <= found.upper)[asked].all()
    assert np.nanmax(found.upper - found.lower) < 0.05


def certificate(piece):
    found = bounds.certify_influence(model_of(piece), TOKENS, include_query=True)
    expected = brute_force(piece)
    asked = ~np.isnan(expected)
    assert (found.upper[asked] >= expected[asked] * (1 - 1e-9)).all()
    assert found.max_upper <= 1.1 * np.nanmax(expected)


def closed_form(piece):
    found = bounds.closed_form_bounds(model_of(piece), len(TOKENS))
    largest = np.nanmax(np.delete(brute_force(piece), -1, axis=0))
    assert math.exp(found.corrected.others.log_value) >= largest


def enclosed(piece, method, **options):
    found = bounds.compute_influence(
        model_of(piece, **options), TOKENS, method=method, include_query=True
    )
    largest = np.nanmax(brute_force(piece, **options))
    assert found.max_lower <= largest * (1 + 1e-9)
    assert largest * (1 - 1e-9) <= found.max_upper <= 1.05 * largest


def supremum(piece):
    options = {"mask": "none", "position": None}
    model = model_of(piece, **options)
    found = exact_supremum(model, len(TOKENS), query=-1, target="activation")
    assert found.exact
    asked = np.delete(brute_force(piece, **options), -1, axis=0)
    assert found.max_upper >= np.nanmax(asked) * (1 - 1e-9)


HARD = {"weighting": "leftmost_hard", "num_layers": 1}


def restriction(piece):
    model = model_of(piece, **HARD)
    found = bounds.find_restriction(model, 9)
    assert check_certificate(model, found.certificate).accepted


def simulation(piece):
    model = model_of(piece, **HARD)
    found = bounds.simulate(model, 12, num_inputs=4, epsilon=0.5)
    assert found.bound is not None
    assert found.error_certificate is not None
    assert found.error_certificate <= found.bound


SLOW = ("certificate", "screened", "supremum")
METHODS = {
    "certificate": certificate,
    "closed form": closed_form,
    "screened": functools.partial(enclosed, method="screened"),
    "lumped": functools.partial(enclosed, method="lumped", mask="none", position=None),
    "supremum": supremum,
    "restriction": restriction,
    "simulation": simulation,
}


def methods(piece):
    """Those that answer take seconds to compile, those that refuse nothing."""
    for method in METHODS:
        answers = method in SLOW and refusal(piece, method) is None
        yield pytest.param(piece, method, marks=[slow] if answers else [])


@pytest.mark.parametrize(
    ("piece", "method"), [case for piece in PIECES for case in methods(piece)]
)
def test_every_other_method_holds_or_refuses_by_name(piece, method):
    said = refusal(piece, method)
    if said is None:
        METHODS[method](piece)
        return
    with pytest.raises(jm.InputError, match=said):
        METHODS[method](piece)


@pieces
def test_a_file_means_the_same_model(piece, tmp_path):
    model, path = model_of(piece), tmp_path / "model.safetensors"
    jm.save(model, path)
    assert in_bytes(jm.load(path)) == in_bytes(model)
    assert b"attention-bounds/2" in path.read_bytes()


@pieces
def test_version_1_does_not_have_it(piece):
    config, _ = written(model_of(piece))
    with pytest.raises(jm.InputError, match="attention-bounds/1' does not have"):
        decode_config(config | {"format": "attention-bounds/1"})


def test_beyond_the_windows_of_all_layers_influence_is_zero():
    found = bounds.compute_influence(model_of("window"), TOKENS, method="incremental")
    reached = np.arange(len(TOKENS)) >= len(TOKENS) - 1 - 2 * 2
    np.testing.assert_array_equal(np.nanmax(found.upper[:-1], axis=1) > 0, reached[:-1])


@pytest.mark.parametrize("window", [0, 2.5, "3"])
def test_a_bad_window_is_refused_by_name(window):
    config, tensors = written(model_of("window"))
    with pytest.raises(jm.InputError, match=r"window = .*; expected"):
        build_model(config | {"window": window}, tensors)


BAD_ROTARY = {
    "'dims'|dims = None": {},
    "rotary.dims = 3; expected an even number": {"dims": 3},
    "rotary.dims = 6; expected at most d_k = 4": {"dims": 6},
    "rotary.theta = 0": {"dims": 4, "theta": 0},
    "rotary.pairing = 'both'": {"dims": 4, "pairing": "both"},
    "rotary has an unknown key|'base'": {"dims": 4, "base": 10.0},
    "rotary.scaling.kind = 'yarn'": {"dims": 4, "scaling": {"kind": "yarn"}},
    "rotary.scaling.factor = None": {"dims": 4, "scaling": {"kind": "linear"}},
    "rotary.scaling.kind = 2": {"dims": 4, "scaling": 2},
    "expected less than high_frequency_factor": {
        "dims": 4,
        "scaling": {
            "kind": "llama3",
            "factor": 8,
            "low_frequency_factor": 4,
            "high_frequency_factor": 1,
            "original_length": 32,
        },
    },
}


@pytest.mark.parametrize("said", BAD_ROTARY)
def test_a_bad_rotary_is_refused_by_name(said):
    config, tensors = written(model_of("rotary"))
    with pytest.raises(jm.InputError, match=said):
        build_model(config | {"rotary": BAD_ROTARY[said]}, tensors)


def test_rotary_goes_with_dot_products_alone():
    with pytest.raises(jm.InputError, match="goes only with dot-product scores"):
        model_of("rotary", score="additive")


def test_products_of_turned_queries_and_keys_depend_on_the_distance_alone():
    rotary = PIECES["part of rotary, interleaved"]["rotary"]
    q, k = np.random.default_rng(0).normal(size=(2, 6))
    turned = [rotary.turn(jnp.tile(x, (9, 1)), jnp.arange(9), 9) for x in (q, k)]
    scores = np.asarray(turned[0] @ turned[1].T)
    for distance in range(-8, 9):
        np.testing.assert_allclose(
            np.diff(np.diagonal(scores, distance)), 0, atol=1e-14
        )
    assert np.ptp(scores) > 0.1


def test_key_heads_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(jm.InputError, match="does not divide num_heads = 2"):
        model_of("one key head", key_value_heads=3)
    with pytest.raises(jm.InputError, match="key_value_heads = 3; expected a divisor"):
        jm.with_weighting(with_key_heads(3), "softmax")


def with_key_heads(count):
    model = model_of("one key head")

    def regroup(layer):
        attention = layer.attention
        names = ("key", "value", "key_bias", "value_bias")
        parts = {
            name: jnp.repeat(getattr(attention, name), count, axis=0) for name in names
        }
        return dataclasses.replace(
            layer, attention=dataclasses.replace(attention, **parts)
        )

    return dataclasses.replace(model, layers=tuple(map(regroup, model.layers)))


def test_grouped_heads_are_heads_with_the_same_keys_and_values():
    found = with_key_heads(2)
    assert b"attention-bounds/1" in jm.model_bytes(found)
    np.testing.assert_array_equal(
        jm.apply(found, TOKENS), jm.apply(model_of("one key head"), TOKENS)
    )


def test_a_head_has_its_own_width_and_some_biases():
    """d_k and d_v apart from d / H, and a bias on queries and values alone."""
    model = model_of("two key heads of four")

    def widen(layer):
        attention = layer.attention
        draw = np.random.default_rng(1).normal(size=(4 + 2 + 2 + 8, 5, 8)) / 8**0.5
        parts = {
            "query": draw[:4, :3],
            "key": draw[4:6, :3],
            "value": draw[6:8],
            "output": draw[8:].reshape(-1, 8)[:20].T,
            "query_bias": draw[0, :4, :3],
            "key_bias": None,
            "value_bias": draw[1, :2, :5],
        }
        parts = {k: None if x is None else jnp.asarray(x) for k, x in parts.items()}
        return dataclasses.replace(
            layer, attention=dataclasses.replace(attention, **parts)
        )

    model = dataclasses.replace(model, layers=tuple(map(widen, model.layers)))
    config, tensors = written(model)
    expected = reference.influence(config, tensors, TOKENS, include_query=True)
    for method in ("exhaustive", "incremental"):
        found = bounds.compute_influence(
            model, TOKENS, method=method, include_query=True
        )
        assert_holds(found, expected)
