"""What is proposed in float32 and decided in float64 is what float64 finds among all."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds import device_mesh
from bounds.influence import TargetFunction, checkpoint, compute_influence, decide
from bounds.influence.moved import moved_request
from jax_models.model.reweight import with_dtype
from tests.bounds.influence.asking import Killed, as_values, on_host, resume
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import TOKENS, build

ONE_LAYER = {"num_layers": 1, "mask": "none"}
N = len(TOKENS)
MAXIMUM = ("max", "position", "symbol", "kind", "method")


@functools.cache
def shared() -> Any:
    return build(ONE_LAYER)


def ask(model, tokens=TOKENS, **question) -> Any:
    return compute_influence(model, tokens, **as_values(**question))


def maximum(found) -> tuple[Any, ...]:
    return tuple(getattr(found, name) for name in MAXIMUM)


@functools.cache
def alike_symbols(seed, count=24) -> Any:
    """All symbols but the first are one to 3e-8, within what float32 rounds by."""
    model = build({**ONE_LAYER, "vocab_size": count})
    noise = jax.random.normal(jax.random.key(seed), (count - 1, model.width))
    alike = model.embedding[1] * (1 + 3e-8 * noise)
    embedding = jnp.concatenate([model.embedding[:1], alike])
    return dataclasses.replace(model, embedding=embedding)


BLOCKS = {"method": "incremental", "memory_limit": 2**17}  # of eight substitutions
ZEROS = np.zeros(N, np.int64)


@pytest.mark.parametrize(
    ("layers", "question"),
    [
        (1, {"method": "incremental", "include_query": True}),
        (1, {"method": "exhaustive", "memory_limit": 2**26}),
        (1, {"method": "incremental", "target": "logits"}),
        (2, {"method": "incremental"}),
        (2, {"method": "partial", "query": 3}),
    ],
    ids=str,
)
def test_the_maximum_is_that_of_float64_to_the_bit(layers, question):
    model = shared() if layers == 1 else build({"num_layers": layers, "mask": "none"})
    plain = ask(model, **question)
    found = ask(model, **question, propose="float32", keep="max")
    assert maximum(found) == maximum(plain)
    # One block may hold all; in smaller ones some are left (the test below).
    assert 1 <= found.decided == found.evaluated <= plain.substitutions
    assert plain.decided is None
    assert (
        f"{found.decided} of {found.substitutions} decided in float64" in found.reason
    )


def test_where_float32_names_another_symbol_float64_decides(monkeypatch):
    missed = 0
    for model in map(alike_symbols, range(4)):
        plain = ask(model, ZEROS, **BLOCKS)
        found = ask(model, ZEROS, **BLOCKS, propose="float32")
        assert maximum(found) == maximum(plain)
        assert 8 < found.decided < plain.substitutions
        with monkeypatch.context() as patched:
            # Without radii what float32 takes for the largest is all that is decided.
            patched.setattr(decide, "radii_of", lambda _, x, *rest, **more: 0 * x)
            alone = ask(model, ZEROS, **BLOCKS, propose="float32")
            missed += alone.symbol != plain.symbol
    assert missed, "no case tells"


def outside(model, tokens) -> tuple[int, bool]:
    """How many influences float32's ends miss, and whether the maximum is float64's."""
    plain, found = (
        ask(model, tokens, **BLOCKS, propose=low) for low in (None, "float32")
    )
    middle = (plain.lower + plain.upper) / 2
    missed = (middle < found.lower) | (middle > found.upper)
    return int(missed.sum()), maximum(found) == maximum(plain)


@pytest.mark.parametrize("layer_norm", ["none", "post"])
def test_symbols_that_are_nearly_alike_lose_digits_in_float32(layer_norm, monkeypatch):
    """The change of a symbol is then less than what both of its ends are rounded by."""
    model = build({**ONE_LAYER, "vocab_size": 12, "layer_norm": layer_norm})
    noise = jax.random.normal(jax.random.key(0), (12, model.width))
    for apart in (1e-7, 1e-5, 1e-3):
        embedding = model.embedding[:1] * (1 + apart * noise)
        alike = dataclasses.replace(model, embedding=embedding)
        assert outside(alike, ZEROS) == (0, True)
        if apart == 1e-5:
            with monkeypatch.context() as patched:
                # Of the float32 copy alone, whose embeddings are not rounded.
                patched.setattr(decide, "_moved_with_embeddings", moved_request)
                missed, _ = outside(alike, ZEROS)
            assert missed > 5


@pytest.mark.parametrize("seed", [3, 22])
def test_equal_influences_are_told_apart_as_among_all(seed):
    """Each is computed in its place of a block, where its last digit is its own."""
    options = {"num_layers": 2, "mask": "none", "position": "none", "vocab_size": 24}
    model = build(options, seed=seed)
    twice = jnp.concatenate([model.embedding[:12]] * 2)
    model = dataclasses.replace(model, embedding=twice)
    tokens = np.random.default_rng(seed).integers(0, 4, 12)
    plain = ask(model, tokens, method="incremental")
    found = ask(model, tokens, method="incremental", keep="max", propose="float32")
    assert maximum(found) == maximum(plain)
    assert found.decided > 1


def test_the_others_have_the_ends_of_float32():
    plain = ask(shared(), method="incremental")
    found = ask(shared(), method="incremental", propose="float32")
    there = ~np.isnan(plain.lower)
    value = (plain.lower[there] + plain.upper[there]) / 2
    assert (found.lower[there] <= value).all()
    assert (value <= found.upper[there]).all()
    wide = found.upper[there] - found.lower[there] > 1e-9
    near = found.upper[there] < 1.001 * plain.upper[there]
    assert (near & (found.lower[there] > 0.999 * plain.lower[there]))[wide].all()
    assert wide.sum() == found.substitutions - found.decided


def test_what_float32_does_not_hold_is_decided():
    model = build({**ONE_LAYER, "layer_norm": "pre", "final_norm": False})
    model = dataclasses.replace(model, embedding=1e39 * model.embedding)
    plain = ask(model, method="incremental")
    found = ask(model, method="incremental", propose="float32")
    assert found.decided == found.substitutions
    assert maximum(found) == maximum(plain)


@pytest.mark.parametrize("method", ["exhaustive", "incremental"])
def test_where_nothing_can_move_the_maximum_is_0(method):
    model = build({**ONE_LAYER, "mask": "future"})
    question = {"method": method, "query": 0, "memory_limit": 2**26}
    found = ask(model, **question, propose="float32")
    assert maximum(found) == maximum(ask(model, **question))
    assert (found.max_upper, found.kind) == (0, "exact")


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("float32", "incremental"),
        ("float32", "exhaustive"),
        ("bfloat16", "incremental"),
    ],
)
def test_what_was_killed_goes_on_and_ends_as_what_was_not(
    name, method, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0)
    counts = {"all": 0, "until": np.inf}
    open_progress = decide.open_progress

    def counted(*given):
        known, save = open_progress(*given)

        def save_and_count(**options):
            save(**options)
            counts["all"] += 1
            if counts["all"] >= counts["until"]:
                raise Killed

        return known, save_and_count

    monkeypatch.setattr(decide, "open_progress", counted)
    model = build({"num_layers": 2, "mask": "future", "vocab_size": 24})
    tokens = np.arange(12) % 5
    question = {"query": 8, "method": method, "propose": name}
    whole, blocks = ask(model, tokens, **question), counts["all"]
    counts["all"], path = 0, tmp_path / "kept.npz"

    def ask_on():
        counts["until"] = counts["all"] + 3
        return ask(model, tokens, **question, checkpoint=path)

    found, stops = resume(ask_on)
    assert stops > 2
    # What was to be decided together may be decided in two.
    assert counts["all"] <= blocks + (name != "float32") * stops
    for end in ("lower", "upper"):
        ends = getattr(found, end), getattr(whole, end)
        rtol = 0 if name == "float32" else 1e-12
        np.testing.assert_allclose(*ends, rtol=rtol)
    same = ("position", "symbol", "decided", "uncertified", "zeros", "kind")
    assert all(getattr(found, x) == getattr(whole, x) for x in same)
    with refused("of another question"):
        ask(model, tokens, **question | {"query": 9}, checkpoint=path)


def test_over_devices_the_maximum_is_theirs():
    model = alike_symbols(0)
    question = {"method": "incremental", "mesh": device_mesh(2), "keep": "max"}
    plain = ask(model, ZEROS, **question)
    assert maximum(ask(model, ZEROS, **question, propose="float32")) == maximum(plain)


REFUSED = {
    "float64 is to decide": lambda: {"model": with_dtype(shared(), "float32")},
    "hard attention": lambda: {
        "model": build({**ONE_LAYER, "weighting": "average_hard"})
    },
    "method = 'screened'; expected": lambda: {
        "model": build({"mask": "none"}),
        "method": "screened",
    },
    "'lumped' does not compute": lambda: {
        "model": build({**ONE_LAYER, "position": None}),
        "method": "lumped",
    },
    "no (float32|bfloat16) form": lambda: {
        "model": on_host(lambda tokens: np.ones(1) * tokens[0], 3)
    },
}
OTHERS = {
    ("float32", "a function that is not ours"): lambda: {
        "target": TargetFunction(lambda x: x[:1])
    },
    ("bfloat16", "hard attention's winners in bfloat16"): REFUSED["hard attention"],
    ("bfloat16", "it needs a layer"): lambda: {"model": build({"num_layers": 0})},
    ("int8", "expected"): dict,
}


@pytest.mark.parametrize(
    ("name", "message"), [*itertools.product(("float32", "bfloat16"), REFUSED), *OTHERS]
)
def test_what_cannot_be_proposed_is_refused(name, message):
    case = OTHERS.get((name, message)) or REFUSED[message]
    with refused(message):
        ask(**{"model": shared(), **case(), "propose": name})
