"""What is proposed in float32 or half precision is decided in float64, as among all."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds import device_mesh
from bounds.influence import checkpoint, decide
from bounds.influence.moved import Readings, moved_request
from bounds.numbers.kind import ROUNDING
from bounds.rounding import ranked
from tests.bounds.influence.asking import Killed, ask, resume
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import TOKENS, build

ONE_LAYER: dict[str, Any] = {"num_layers": 1, "mask": "none"}
N = len(TOKENS)
INCREMENTAL: dict[str, Any] = {"method": "incremental"}


@functools.cache
def shared() -> Any:
    return build(ONE_LAYER)


def maximum(found) -> tuple[Any, ...]:
    return found.max, found.position, found.symbol, found.kind, found.method


@functools.cache
def alike_symbols(seed, count=24) -> Any:
    """All symbols but the first are one to 3e-8, within what float32 rounds by."""
    model = build({**ONE_LAYER, "vocab_size": count})
    noise = jax.random.normal(jax.random.key(seed), (count - 1, model.width))
    alike = model.embedding[1] * (1 + 3e-8 * noise)
    embedding = jnp.concatenate([model.embedding[:1], alike])
    return dataclasses.replace(model, embedding=embedding)


BLOCKS = {**INCREMENTAL, "memory_limit": 2**17}  # of eight substitutions
ZEROS = np.zeros(N, np.int64)


@pytest.mark.parametrize(
    ("layers", "question"),
    [
        (1, {**INCREMENTAL, "include_query": True}),
        (1, {"method": "exhaustive", "memory_limit": 2**26}),
        (1, {**INCREMENTAL, "target": "logits"}),
        (1, {**INCREMENTAL, "mesh": device_mesh(2)}),
        (2, INCREMENTAL),
        (2, {"method": "partial", "query": 3}),
    ],
    ids=str,
)
def test_the_maximum_is_that_of_float64_to_the_bit(layers, question):
    model = shared() if layers == 1 else build({"num_layers": layers, "mask": "none"})
    plain = ask(model, TOKENS, **question)
    found = ask(model, TOKENS, **question, propose="float32", keep="max")
    assert maximum(found) == maximum(plain)
    # One block may hold all; in smaller ones some are left (the test below).
    assert 1 <= found.decided == found.evaluated <= plain.substitutions
    assert plain.decided is None
    told = f"{found.decided} of {found.substitutions} decided in float64"
    assert told in found.reason


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
    plain = ask(model, tokens, **BLOCKS)
    found = ask(model, tokens, **BLOCKS, propose="float32")
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
    plain = ask(model, tokens, **INCREMENTAL)
    found = ask(model, tokens, **INCREMENTAL, keep="max", propose="float32")
    assert maximum(found) == maximum(plain)
    assert found.decided > 1


def test_the_others_have_the_ends_of_float32():
    plain = ask(shared(), TOKENS, method="incremental")
    found = ask(shared(), TOKENS, method="incremental", propose="float32")
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
    plain = ask(model, TOKENS, method="incremental")
    found = ask(model, TOKENS, method="incremental", propose="float32")
    assert found.decided == found.substitutions
    assert maximum(found) == maximum(plain)


@pytest.mark.parametrize("method", ["exhaustive", "incremental"])
def test_where_nothing_can_move_the_maximum_is_0(method):
    model = build({**ONE_LAYER, "mask": "future"})
    question = {"method": method, "query": 0, "memory_limit": 2**26}
    found = ask(model, TOKENS, **question, propose="float32")
    assert maximum(found) == maximum(ask(model, TOKENS, **question))
    assert (found.max_upper, found.kind) == (0, "exact")


WAYS = [
    ("float32", "incremental"),
    ("float32", "exhaustive"),
    ("bfloat16", "incremental"),
]


@pytest.mark.parametrize(("name", "method"), WAYS)
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


LETTERS = np.random.default_rng(0).integers(0, 24, 12)


def of_letters(layers=1, **question) -> Any:
    case = {**ONE_LAYER, "vocab_size": 24, "num_layers": layers}
    return ask(build(case, seed=7), LETTERS, **question)


@pytest.fixture(scope="module")
def plain():
    """The answer in float64, and its values in the order of substitutions."""
    found = of_letters(**INCREMENTAL)
    middle = 0.5 * (found.lower + found.upper)
    return found, middle[~np.isnan(middle)]


def place(found):
    return found.position, found.symbol, found.method


def rank(monkeypatch, estimates) -> Any:
    """What is found where these are the estimates in half precision [P]."""
    found = Readings(estimates, np.full(estimates.shape, np.nan), None)
    monkeypatch.setattr(ranked, "_estimate", lambda known, *_: known.add(found))
    return of_letters(**INCREMENTAL, propose="bfloat16")


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("bfloat16", INCREMENTAL),
        ("bfloat16", {"method": "exhaustive"}),
        ("bfloat16", {"include_query": True}),
        ("bfloat16", {"mesh": device_mesh(2), **INCREMENTAL}),
        ("float16", INCREMENTAL),
        ("bfloat16", {"method": "partial", "layers": 2}),
    ],
    ids=str,
)
def test_what_is_decided_is_that_of_float64(name, question):
    plain, found = of_letters(**question), of_letters(**question, propose=name)
    assert place(found) == place(plain)
    assert found.max_lower <= plain.max <= found.max_upper
    assert (found.kind, found.exact) == ("estimated", False)
    assert found.uncertified == found.substitutions - found.decided
    assert ranked.SAMPLE <= found.decided < found.substitutions
    assert found.enclosed.sum() == found.decided
    met = (found.lower <= plain.upper) & (plain.lower <= found.upper)
    assert met[found.enclosed].all()
    rest = ~np.isnan(plain.lower) & ~found.enclosed
    estimates = found.lower[rest]
    np.testing.assert_array_equal(estimates, found.upper[rest])
    off = np.abs(estimates / plain.upper[rest] - 1)
    assert 0 < off.max() < ranked.MARGIN * found.measured_error.max
    assert estimates.max() < found.max
    told = f"{found.decided} of {found.substitutions} decided in float64"
    assert f"all ranked in {name}, {told}" in found.reason
    assert f"{found.decided} decided in float64, the others estimated" in repr(found)
    assert found.hypotheses == (ROUNDING, ranked.RANKED)


def test_a_hidden_maximum_is_found_within_the_margin(plain, monkeypatch):
    """Estimates are 1 % too large, the maximum's 3 % too small: three are above it."""
    plain, values = plain
    estimates = 1.01 * values
    estimates[np.argmax(values)] *= 0.97 / 1.01
    assert (estimates > estimates[np.argmax(values)]).sum() == 3
    monkeypatch.setattr(ranked, "SAMPLE", 1)
    found = rank(monkeypatch, estimates)
    assert (found.max, *place(found)) == (plain.max, *place(plain))
    assert found.kind == "estimated"
    assert found.measured_error.max == pytest.approx(0.03)
    within = estimates >= (1 - 0.03 * ranked.MARGIN) * found.max
    assert found.decided == within.sum() + 1, "and the sample"
    assert found.measured_error.substitutions == found.decided
    monkeypatch.setattr(ranked, "MARGIN", 0)
    missed = rank(monkeypatch, estimates)
    assert missed.max < plain.max
    assert missed.decided < found.decided


@pytest.mark.parametrize("estimate", ["infinite", "none of its own"])
def test_what_may_be_anything_is_decided(estimate, plain, monkeypatch):
    """One that float32 has no number for, or all of them where errors tell nothing."""
    plain, values = plain
    if estimate == "infinite":
        least = int(np.argmin(values))
        found = rank(monkeypatch, np.where(values == values[least], np.inf, values))
        assert (found.measured_error.max < 1e-9, found.kind) == (True, "estimated")
        pairs = np.argwhere(~np.isnan(plain.lower))
        at = tuple(pairs[least])
        assert found.enclosed[at]
        assert found.lower[at] <= values[least] <= found.upper[at]
    else:
        found = rank(monkeypatch, np.full(values.size, values.max()))
        assert found.decided == found.substitutions
        assert (found.kind, found.measured_error) == ("exact", None)
        assert found.hypotheses == (ROUNDING,)
        np.testing.assert_array_equal(found.upper, plain.upper)
    assert (found.max, *place(found)) == (plain.max, *place(plain))
