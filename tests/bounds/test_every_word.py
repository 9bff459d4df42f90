"""What version 2 of the file alone can say: each method does it, or refuses it by name."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.all_inputs.supremum import exact_supremum
from bounds.influence.propagation import pointwise
from bounds.influence.targets import change as target
from bounds.restriction.checker import check_certificate
from bounds.simulation.paper_shape import check_simulable
from jax_models.format.config import VERSION_1
from jax_models.model.attending import project_key_changes
from jax_models.model.rows import ACTIVATIONS, NORMS
from jax_models.model.transformer import embedded
from jax_models.run.differentiable import forward_embeddings
from tests.architecture import with_attention
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.many_digits import DIGITS
from tests.bounds.influence.models import TOKENS, build
from tests.written import written


def newer(name, table):
    """The words that version 1 does not have."""
    return [word for word in table if word not in VERSION_1[name]]


NORMED = itertools.product(newer("norm", NORMS), ("pre", "post"))
WORDS: dict[str, dict[str, Any]] = {
    **{word: {"activation": word} for word in newer("activation", ACTIVATIONS)},
    **{
        f"{word}-{place}-True": {"norm": word, "layer_norm": place, "final_norm": True}
        for word, place in NORMED
    },
    "swiglu": {"activation": "silu", "gated": True, "layer_norm": "pre"},
    "geglu": {"activation": "gelu", "gated": True, "layer_norm": "post"},
    "bare reglu": {"gated": True, "block_biases": False},
    "gated squares": {"activation": "relu_squared", "gated": True, "combine": "concat"},
    **{
        f"{head} head": {"head": head, "target": "logits", "activation": "gelu", **more}
        for head, more in (
            ("tied", {}),
            ("masked_lm", {"layer_norm": "post"}),
            ("pooler", {"final_norm": True}),
            ("classifier", {"layer_norm": "pre"}),
        )
    },
    "repeated layers": {"num_layers": 2, "same_layers": (0, 0)},
    "parallel": {"combine": "parallel"},
    "parallel-pre": {"combine": "parallel", "layer_norm": "pre"},
    "no norm1": {"layer_norm": "pre", "norm1": False},
    "no biases in blocks": {"block_biases": False, "activation": "gelu"},
}
BUCKETS = jnp.asarray(np.random.default_rng(3).normal(size=(2, 8)))
# Of attention and of embeddings.
PIECES: dict[str, dict[str, Any]] = {
    "one key head": {"key_value_heads": 1},
    "two key heads of four": {"num_heads": 4, "key_value_heads": 2},
    "window": {"window": 3},
    "window on both sides": {"window": 4, "mask": "none"},
    "window without the row": {"window": 2, "mask": "strict_future"},
    "alibi": {"distance_bias": jm.Alibi(jnp.asarray([0.5, 0.125])), "position": None},
    "distance buckets": {
        "distance_bias": jm.DistanceBuckets(BUCKETS, True, 6),
        "mask": "none",
        "temperature": "inverse_log",
    },
    "normed queries and keys": {"query_key_norm": "layer_norm", "layer_norm": "pre"},
    "normed, grouped and rotary": {
        "query_key_norm": "rms_norm",
        "key_value_heads": 1,
        "rotary": jm.Rotary(4),
        "position": None,
    },
    "rotary": {"rotary": jm.Rotary(4), "position": None},
    "part of rotary, interleaved": {
        "d_model": 16,
        "rotary": jm.Rotary(4, 100.0, "interleaved", jm.LinearScaling(2.0)),
    },
    "rotary of llama": {
        "rotary": jm.Rotary(4, 50.0, "half", jm.Llama3Scaling(8.0, 1.0, 4.0, 16.0)),
        "key_value_heads": 1,
        "position": None,
    },
    "norm behind the embedding": {"entry_norm": True, "layer_norm": "post"},
    "narrow embedding": {"d_embedding": 4, "biases": False},
    "norm of a narrow embedding": {"entry_norm": True, "d_embedding": 6},
}
ALL = WORDS | {name: {"mask": "future", **case} for name, case in PIECES.items()}
# In norm by norm and gelu by tanh the plain transformer of the tests is not written.
PLAIN = [name for name in ALL if "norm-" not in name and "tanh" not in name]
slow = pytest.mark.slow
pieces = pytest.mark.parametrize("piece", PIECES)


@functools.cache
def model_of(name, seed=0, **options) -> Any:
    """Model of a case; with norm1 = False its first layer has no norm before attention."""
    case = {**ALL[name], **options}
    normed = case.pop("norm1", True)
    model = build(case, seed)
    if normed:
        return model
    first, *others = model.layers
    return dataclasses.replace(
        model, layers=(dataclasses.replace(first, norm1=None), *others)
    )


def target_of(name):
    return ALL[name].get("target", "activation")


@functools.cache
def truth(name, **options):
    """Influences by passes of the reference, or of the model where that is not written."""
    model = model_of(name, **options)
    asked: dict[str, Any] = {"target": target_of(name), "include_query": True}
    if name in PLAIN:
        return reference.influence(*written(model), TOKENS, **asked)
    asked |= {"method": "exhaustive", "rounding": "none"}
    return bounds.compute_influence(model, TOKENS, **asked).upper


@pytest.mark.parametrize("name", PLAIN)
def test_the_model_is_the_one_that_the_format_page_says(name):
    model, close = (
        model_of(name),
        functools.partial(np.testing.assert_allclose, rtol=1e-12),
    )
    expected = reference.logits(*written(model), TOKENS)
    close(jm.apply_logits(model, TOKENS), expected, atol=1e-13)
    found = jax.jit(forward_embeddings)(model, embedded(model, jnp.asarray(TOKENS)))
    close(found, reference.forward(*written(model), TOKENS), atol=1e-13)


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
    expected = reference.forward(*written(model_of(piece, num_layers=1)), TOKENS)
    other = build({**ALL[piece], "num_layers": 1, **PLANTED[piece]})
    assert np.abs(expected - jm.apply(other, TOKENS)).max() > 1e-6


@slow
@pieces
def test_the_forward_pass_over_devices_is_that_of_one(piece):
    model = model_of(piece)
    shared = jm.apply(model, TOKENS, mesh=jm.device_mesh(3))
    np.testing.assert_allclose(shared, jm.apply(model, TOKENS), rtol=1e-12, atol=1e-13)


def ask(name, method, **options):
    asked = {"target": target_of(name), "include_query": True}
    model = model_of(name, **options)
    return bounds.compute_influence(model, TOKENS, method=method, **asked)


def assert_holds(found, expected):
    """Brute force is in the enclosure but for its own rounding, and the radius is small."""
    assert found.exact
    assert np.nanmax(expected) > 1e-3
    assert encloses(found, expected, 1e-12 + 1e-10 * expected)
    assert np.nanmax(found.upper - found.lower) <= 1e-9


def influence(name, method, weighting="softmax", **options):
    options |= {"weighting": weighting}
    assert_holds(ask(name, method, **options), truth(name, **options))


def enclosed(name, method, **options):
    found, largest = ask(name, method, **options), np.nanmax(truth(name, **options))
    assert found.max_lower <= largest * (1 + 1e-9)
    assert largest * (1 - 1e-9) <= found.max_upper <= 1.05 * largest


def certificate(name):
    model, target, expected = model_of(name), target_of(name), truth(name)
    asked = {"target": target, "include_query": True}
    found = bounds.certify_influence(model, TOKENS, **asked)
    there = ~np.isnan(expected)
    assert (found.upper[there] >= expected[there] * (1 - 1e-9)).all()
    # Of a bent head its Lipschitz constant over all inputs is what is known.
    bent = target == "logits" and len(model.head.steps) > 1
    assert found.max_upper <= (math.inf if bent else 1.05) * np.nanmax(expected)
    assert found.max_upper < math.inf


def closed_form(name):
    length, target = len(TOKENS), target_of(name)
    found = bounds.closed_form_bounds(model_of(name), length, target=target)
    assert math.exp(found.corrected.others.log_value) >= np.nanmax(truth(name)[:-1])


def supremum(name):
    options = {"mask": "none", "position": None}
    model = model_of(name, **options)
    found = exact_supremum(model, len(TOKENS), query=-1, target="activation")
    assert found.exact
    assert found.max_upper >= np.nanmax(truth(name, **options)[:-1]) * (1 - 1e-9)


HARD = {"weighting": "leftmost_hard", "num_layers": 1}


def restriction(name):
    options = {**HARD, "num_layers": 2} if name in WORDS else HARD
    model = model_of(name, **options, head="linear")
    found = bounds.find_restriction(model, 9)
    assert check_certificate(model, found.certificate).accepted


def simulation(name):
    found = bounds.simulate(model_of(name, **HARD), 12, num_inputs=4, epsilon=0.5)
    assert found.bound is not None
    assert found.error_certificate is not None
    assert found.error_certificate <= found.bound


METHODS = {
    "certificate": certificate,
    "closed form": closed_form,
    "screened": functools.partial(enclosed, method="screened"),
    "restriction": restriction,
    "incremental": functools.partial(influence, method="incremental"),
    "lumped": functools.partial(enclosed, method="lumped", mask="none", position=None),
    "supremum": supremum,
    "simulation": simulation,
}
NEW = [*newer("activation", ACTIVATIONS), *newer("norm", NORMS)]


def refusal(name, method):
    """What a message calls the part that a method has no rule for, None if it does it."""
    case = ALL[name]
    bent = case.get("gated") or case.get("activation") == "relu_squared"
    if method in ("certificate", "closed form") and bent:
        return "needs a rule for"
    normed = "query_key_norm" in case
    if method == "restriction" and (bent or {*NEW} & {*map(str, case.values())}):
        # Pieces that a layer has are named before its operations.
        return (
            "a norm of queries" if normed else "a rule for enclose of|norm is RmsNorm"
        )
    if method == "screened" and case.get("head", "tied") != "tied":
        return "affine in the final activation, not"
    if method == "incremental" or name in WORDS:
        return None
    if normed:
        return "a norm of queries"
    if "rotary" in case:
        return "rotary positions"
    if "distance_bias" in case:
        return "a bias of the distance"
    if "window" in case and method not in ("certificate", "screened"):
        return "a sliding window"
    entered = {"entry_norm", "d_embedding"} & case.keys()
    if entered and method not in ("screened", "lumped", "supremum"):
        return "behind them"
    return None


# Words go through those that come first in the table, pieces through the ways below too.
OF_WORDS = list(METHODS)[:5]
CASES = [
    *((name, method) for name in WORDS for method in OF_WORDS),
    *(
        (name, method)
        for name in PIECES
        for method in METHODS
        if method != "incremental"
    ),
]


REFUSED = [case for case in CASES if refusal(*case)]


@pytest.mark.parametrize(("name", "method"), [x for x in CASES if x not in REFUSED])
def test_every_method_that_has_the_rules_holds(name, method):
    METHODS[method](name)


@pytest.mark.parametrize(("name", "method"), REFUSED)
def test_every_other_method_refuses_by_name(name, method):
    with refused(refusal(name, method)):
        METHODS[method](name)


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
    influence(piece, method, weighting, num_layers=num_layers)


TWO = ("swiglu", "bare reglu", "parallel", "parallel-pre", "masked_lm head")
DRAWN = [
    *((name, 2, "float64") for name in TWO),
    *((name, 1, "float64") for name in ("tied head", "classifier head")),
    *((name, 2, "float32") for name in ("geglu", "gated squares")),
    *(("relu_squared", 3, "float32"), ("pooler head", 1, "float32")),
]


def digits_of(name, method, length=6, **options):
    """An answer with radii, and the influences with many digits."""
    model, asked = model_of(name, **options), {"target": target_of(name)}
    tokens = TOKENS[:length]
    exact = reference.influence(*written(model), tokens, arithmetic=DIGITS, **asked)
    return bounds.compute_influence(model, tokens, method=method, **asked), exact


@pytest.mark.parametrize(("name", "num_layers", "dtype"), DRAWN)
def test_changes_are_those_of_many_digits_within_the_radius(name, num_layers, dtype):
    options = {"num_layers": num_layers, "dtype": dtype, "seed": num_layers}
    assert encloses(*digits_of(name, "incremental", **options))


STEEP, SINGLE = {"scale": 2.0, "biases": False}, {"dtype": "float32"}


@slow
@pytest.mark.parametrize(
    ("method", "options"),
    [("exhaustive", STEEP), ("incremental", STEEP), ("incremental", SINGLE)],
)
@pieces
def test_radii_hold_against_many_digits(piece, method, options):
    found, exact = digits_of(piece, method, 5, **options)
    assert encloses(found, exact)
    assert np.nanmax(found.upper - found.lower) < 0.05


def off(model, tokens, **asked):
    """Errors of changes without radii, as shares of the largest influence."""
    expected = reference.influence(*written(model), tokens, **asked)
    asked = {"method": "incremental", "rounding": "none", **asked}
    found = bounds.compute_influence(model, tokens, **asked).upper
    return (np.abs(found - expected) / np.nanmax(expected))[~np.isnan(expected)]


def test_a_head_whose_last_map_is_left_out_is_caught(plant):
    whole = target.exit_program

    def short(*asked):
        program = whole(*asked)
        return dataclasses.replace(program, output=program.steps[-2].name)

    plant(target, "exit_program", short)
    model = model_of("classifier head", num_layers=1, d_ff=3)
    assert off(model, TOKENS[:6], target="logits").min() > 1e-6


@pytest.mark.parametrize("planted", ["turned elsewhere", "not turned", "not normed"])
def test_brute_force_notices_wrong_changes_of_keys(planted, plant):
    def wrong(attention, change, length, positions, before):
        if planted == "not normed":
            attention = dataclasses.replace(attention, key_norm=None)
        if planted == "not turned":
            attention = dataclasses.replace(attention, rotary=None)
        if planted == "turned elsewhere":
            positions = positions + 1
        return project_key_changes(attention, change, length, positions, before)

    plant(pointwise, "project_key_changes", wrong)
    assert off(model_of("normed, grouped and rotary"), TOKENS[:7]).max() > 1e-4


BLOCKS = ["relu_squared", "swiglu", "geglu", "bare reglu", "gated squares"]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_simulation_refuses_operations_without_an_error_gain(name):
    options = {
        "layer_norm": "none",
        "weighting": "leftmost_hard",
        "combine": "residual",
    }
    with refused(r"has (Product|ReluSquared), whose error"):
        check_simulable(model_of(name, **options))


def test_windows_end_influences_and_certificates_follow_them():
    found = bounds.certify_influence(model_of("window", num_layers=1), TOKENS)
    assert found.max_upper >= np.nanmax(truth("window", num_layers=1)[:-1])
    found = ask("window", "incremental")
    reached = np.arange(len(TOKENS)) >= len(TOKENS) - 1 - 2 * 2
    np.testing.assert_array_equal(found.position_upper > 0, reached)


def with_key_heads(count):
    names = ("key", "value", "key_bias", "value_bias")

    def regroup(attention):
        return {x: jnp.repeat(getattr(attention, x), count, axis=0) for x in names}

    return with_attention(model_of("one key head"), regroup)


def test_key_heads_that_do_not_divide_the_heads_are_refused():
    with refused("key_value_heads = 3; expected a divisor of the 2 heads"):
        model_of("one key head", key_value_heads=3)
    with refused("key_value_heads = 3; expected a divisor"):
        jm.with_weighting(with_key_heads(3), "softmax")


def test_grouped_heads_are_heads_with_the_same_keys_and_values():
    found, grouped = with_key_heads(2), model_of("one key head")
    assert b"attention-bounds/1" in jm.model_bytes(found)
    np.testing.assert_array_equal(jm.apply(found, TOKENS), jm.apply(grouped, TOKENS))


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
    expected = reference.influence(*written(model), TOKENS, include_query=True)
    for method in ("exhaustive", "incremental"):
        given = {"method": method, "include_query": True}
        found = bounds.compute_influence(model, TOKENS, **given)
        assert_holds(found, expected)
