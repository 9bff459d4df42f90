"""Pieces of models of version 2: each method does them, or refuses them by name."""

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
from bounds.influence.propagation import pointwise
from bounds.restriction.checker import check_certificate
from jax_models.model.attending import project_key_changes
from jax_models.model.transformer import embedded
from jax_models.run.differentiable import forward_embeddings
from tests.architecture import with_attention
from tests.bounds.attention_pieces import PIECES, brute_force, model_of, refusal
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.models import TOKENS, build
from tests.written import written

slow = pytest.mark.slow
pieces = pytest.mark.parametrize("piece", PIECES)


@pieces
def test_the_forward_pass_is_the_reference(piece):
    model = model_of(piece, num_layers=1)
    config, tensors = written(model)
    expected = reference.forward(config, tensors, TOKENS)
    np.testing.assert_allclose(
        jm.apply(model, TOKENS), expected, rtol=1e-12, atol=1e-13
    )
    rows = embedded(model, jnp.asarray(TOKENS))
    found = jax.jit(forward_embeddings)(model, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@slow
@pieces
def test_the_forward_pass_over_devices_is_that_of_one(piece):
    model = model_of(piece)
    shared = jm.apply(model, TOKENS, mesh=jm.device_mesh(3))
    alone = jm.apply(model, TOKENS)
    np.testing.assert_allclose(shared, alone, rtol=1e-12, atol=1e-13)


PLANTED = {
    "one key head": {"key_value_heads": 2},
    "window": {"window": 4},
    "alibi": {"distance_bias": jm.Alibi(jnp.asarray([0.5, 0.124]))},
    "distance buckets": {
        "distance_bias": jm.DistanceBuckets(jnp.arange(16.0).reshape(2, 8), True, 7)
    },
    "normed queries and keys": {"layer_norm_epsilon": 1e-4},
    "rotary": {"rotary": jm.Rotary(4, pairing="interleaved")},
    "part of rotary, interleaved": {
        "rotary": jm.Rotary(4, 100.0, "interleaved", jm.LinearScaling(2.1))
    },
    "rotary of llama": {
        "rotary": jm.Rotary(4, 50.0, "half", jm.Llama3Scaling(8.0, 1.0, 4.0, 17.0))
    },
}


@pytest.mark.parametrize("piece", PLANTED)
def test_the_reference_notices_another_number(piece):
    config, tensors = written(model_of(piece, num_layers=1))
    other = build_other(piece)
    found = reference.forward(config, tensors, TOKENS)
    assert np.abs(found - jm.apply(other, TOKENS)).max() > 1e-6


def build_other(piece):
    case = {"mask": "future", "num_layers": 1, **PIECES[piece]}
    return build({**case, **PLANTED[piece]})


@pytest.mark.parametrize("planted", ["turned elsewhere", "not turned", "not normed"])
def test_brute_force_notices_wrong_changes_of_keys(planted, monkeypatch):
    """At a length of its own: what is compiled for others stays right."""
    piece = "normed, grouped and rotary"
    length = {"turned elsewhere": 7, "not turned": 8, "not normed": 9}[planted]
    model, tokens = model_of(piece), TOKENS[:length]

    def wrong(attention, change, length, positions, before):
        if planted == "not normed":
            attention = dataclasses.replace(attention, key_norm=None)
        if planted == "not turned":
            attention = dataclasses.replace(attention, rotary=None)
        if planted == "turned elsewhere":
            positions = positions + 1
        return project_key_changes(attention, change, length, positions, before)

    config, tensors = written(model)
    expected = reference.influence(config, tensors, tokens)
    monkeypatch.setattr(pointwise, "project_key_changes", wrong)
    found = bounds.compute_influence(
        model, tokens, method="incremental", rounding="none"
    )
    asked = ~np.isnan(expected)
    off = np.abs(found.upper - expected)[asked].max()
    assert off > 1e-4 * np.nanmax(expected)


def assert_holds(found, expected):
    """Brute force is in the enclosure but for its own rounding, and the radius is small."""
    assert encloses(found, expected, 1e-12 + 1e-10 * expected)
    assert np.nanmax(found.upper - found.lower) <= 1e-9


WAYS = [
    ("exhaustive", "softmax", 2),
    ("exhaustive", "average_hard", 3),
    ("incremental", "softmax", 1),
    ("incremental", "average_hard", 2),
    ("incremental", "leftmost_hard", 3),
    ("incremental", "softmax", 3),
    ("incremental", "softmax", 2),
]


@pieces
@pytest.mark.parametrize(("method", "weighting", "num_layers"), WAYS)
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
    assert encloses(found, expected)


@slow
@pieces
def test_float32_is_enclosed_too(piece):
    model = model_of(piece, dtype="float32")
    config, tensors = written(model)
    expected = reference.influence(config, tensors, TOKENS)
    found = bounds.compute_influence(model, TOKENS, method="incremental")
    assert encloses(found, expected)
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
    with refused(said):
        METHODS[method](piece)


def test_beyond_the_windows_of_all_layers_influence_is_zero():
    found = bounds.compute_influence(model_of("window"), TOKENS, method="incremental")
    reached = np.arange(len(TOKENS)) >= len(TOKENS) - 1 - 2 * 2
    np.testing.assert_array_equal(np.nanmax(found.upper[:-1], axis=1) > 0, reached[:-1])


def test_key_heads_that_do_not_divide_the_heads_are_refused():
    with refused("key_value_heads = 3; expected a divisor of the 2 heads"):
        model_of("one key head", key_value_heads=3)
    with refused("key_value_heads = 3; expected a divisor"):
        jm.with_weighting(with_key_heads(3), "softmax")


def with_key_heads(count):
    names = ("key", "value", "key_bias", "value_bias")

    def regroup(attention):
        return {x: jnp.repeat(getattr(attention, x), count, axis=0) for x in names}

    return with_attention(model_of("one key head"), regroup)


def test_grouped_heads_are_heads_with_the_same_keys_and_values():
    found = with_key_heads(2)
    assert b"attention-bounds/1" in jm.model_bytes(found)
    np.testing.assert_array_equal(
        jm.apply(found, TOKENS), jm.apply(model_of("one key head"), TOKENS)
    )


def test_a_head_has_its_own_width_and_some_biases():
    """d_k and d_v apart from d / H, and a bias on queries and values alone."""
    draw = np.random.default_rng(1).normal(size=(4 + 2 + 2 + 8, 5, 8)) / 8**0.5
    parts = {
        "query": draw[:4, :3],
        "key": draw[4:6, :3],
        "value": draw[6:8],
        "output": draw[8:].reshape(-1, 8)[:20].T,
        "query_bias": draw[0, :4, :3],
        "value_bias": draw[1, :2, :5],
    }
    wide = {"key_bias": None} | {k: jnp.asarray(x) for k, x in parts.items()}
    model = with_attention(model_of("two key heads of four"), wide)
    config, tensors = written(model)
    expected = reference.influence(config, tensors, TOKENS, include_query=True)
    for method in ("exhaustive", "incremental"):
        found = bounds.compute_influence(
            model, TOKENS, method=method, include_query=True
        )
        assert_holds(found, expected)
