"""Influences keep their digits: against many-digit arithmetic and closed forms."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from benchmarks.exact_values import exact_values
from benchmarks.published_parity import bit_influence
from bounds.influence import compute_influence
from bounds.influence.build import build_request
from jax_models.constructions import normalised_parity_transformer, parity_transformer
from tests.architecture import small_model
from tests.bounds.influence.models import edit_weights
from tests.long_inputs import long_inputs
from tests.written import written

# A column may be e^200 times as heavy as another: 87 digits, and 50 to spare.
DIGITS = 140


def draw(num_layers, dtype="float64", **options) -> Any:
    shape = {"num_heads": 2, "d_ff": 8, "num_layers": num_layers, "dtype": dtype}
    return small_model(7, **{**shape, **options})


def exact_influences(model, tokens, pairs):
    request = build_request(model, tokens, include_query=True)
    listed = list(zip(request.position, request.symbol, strict=True))
    found = exact_values(request, DIGITS, [listed.index(pair) for pair in pairs])
    return found.astype(float)


def assert_precise(model, tokens, pairs):
    result = compute_influence(model, tokens, method="incremental", include_query=True)
    at, to = np.transpose(pairs)
    lower, upper = result.lower[at, to], result.upper[at, to]
    expected = exact_influences(model, tokens, pairs)
    error = np.abs((lower + upper) / 2 - expected)
    if model.dtype == np.float32:
        # The query's own influence is apart: it is far larger than all others.
        others = np.delete(result.upper, result.query, axis=0)
        largest = np.where(at == result.query, expected, np.nanmax(others))
        assert (error <= 1e-5 * largest).all(), (error / largest).max()
        return
    assert (error <= 1e-12 * expected).all(), (error / expected).max()
    # The stated radius holds too.
    assert (lower <= expected).all()
    assert (expected <= upper).all()


def random_tokens(n, vocab_size=2):
    return np.random.default_rng(3).integers(0, vocab_size, n)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layer_norm", ["none", "pre"])
def test_two_layers_keep_their_digits(layer_norm, dtype):
    model = draw(2, dtype, mask="future", layer_norm=layer_norm)
    tokens = random_tokens(24)
    assert_precise(model, tokens, [(i, 1 - tokens[i]) for i in (0, 12, 22, 23)])


N = 8
DOMINANT = 2  # The symbol whose key is ahead of all others.


def dominated_model(num_layers, where, gap, dtype) -> Any:
    """In layer `where`, symbol 2 has a score `gap` ahead of all others, in every row.

    Coordinate 0 holds that score: layer `where` reads nothing else but a little of
    coordinate 1 for its scores, no other weight reads it, and none writes it.
    """
    model = draw(
        num_layers, dtype, num_heads=1, vocab_size=3, score="dot_product", biases=True
    )

    no_column, no_row = lambda x: x.at[..., 0].set(0), lambda x: x.at[0].set(0)
    unread = dict.fromkeys(("query", "key", "value", "w1"), no_column)
    unread |= dict.fromkeys(("output", "output_bias", "w2", "b2"), no_row)
    model = edit_weights(model, **unread)
    model = edit_weights(
        model,
        where,
        query=jnp.zeros_like,
        query_bias=lambda x: jnp.zeros_like(x).at[:, 0].set(1),
        key=lambda x: jnp.zeros_like(x).at[:, 0, 0].set(1).at[:, 0, 1].set(0.25),
    )
    table = np.random.default_rng(5).normal(size=(N, 4)) * [0, 1, 1, 1]
    scores = jnp.asarray([0, 0.5, gap + 2], dtype)
    return dataclasses.replace(
        model,
        embedding=model.embedding.at[:, 0].set(scores),
        position=jm.PositionTable(jnp.asarray(table, dtype)),
    )


INPUTS = {"leaves": [3], "arrives": [], "one of two leaves": [1, 5]}
PLACES = [(0, 20.0), (0, 100.0), (1, 5.0), (1, 100.0)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("num_layers", "where", "gap"),
    [(1, 0, 5.0), (1, 0, 36.0), *((2, where, x) for where, x in PLACES)],
)
def test_a_dominant_column_leaves_or_arrives(num_layers, where, gap, dtype):
    model = dominated_model(num_layers, where, gap, dtype)
    for positions in INPUTS.values():
        tokens = random_tokens(N)
        tokens[positions] = DOMINANT
        pairs = [(i, s) for i in (0, 3, 7) for s in range(3) if tokens[i] != s]
        assert_precise(model, tokens, pairs)


def test_the_dominant_column_is_dominant():
    """What the test above claims of its models, and that it can fail."""
    model = dominated_model(1, 0, 36.0, "float64")
    tokens = random_tokens(N)
    tokens[3] = DOMINANT
    other = 2, 1 - tokens[2]
    leaves, stays = exact_influences(model, tokens, [(3, 0), other])
    assert leaves > 1e-2
    assert 0 < stays < 1e-14
    exhaustive = compute_influence(model, tokens, method="exhaustive")
    assert abs(exhaustive.upper[other] - stays) > 1e-2 * stays


@pytest.mark.parametrize("weighting", ["softmax", "average_hard"])
def test_three_layers_keep_the_digits_of_a_tiny_change(weighting):
    """Two symbols whose embeddings nearly agree: a subtraction keeps half the digits."""
    model = draw(3, weighting=weighting, mask="future")
    one, other = model.embedding
    embedding = jnp.stack([one, one + 1e-8 * (other - one)])
    model, tokens = dataclasses.replace(model, embedding=embedding), random_tokens(4)
    digits = reference.multiprecision(50)
    expected = reference.influence(*written(model), tokens, arithmetic=digits)
    assert np.nanmax(expected) < 1e-6
    found, subtracted = (
        compute_influence(model, tokens, method=method, rounding="none").upper
        for method in ("incremental", "exhaustive")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert np.nanmax(np.abs(subtracted / expected - 1)) > 1e-9


SHARPNESS = 1.5


def parity_influence(num_tokens, c=SHARPNESS):
    return bit_influence(c, num_tokens - 1)


@pytest.mark.parametrize("num_tokens", [2, 64, 1000])
def test_an_even_length_has_the_short_form(num_tokens):
    short = 4 * np.tanh(SHARPNESS) / num_tokens**2
    assert parity_influence(num_tokens) == pytest.approx(short, rel=1e-14)


def bits_and_query(num_tokens, bias=0.5):
    bits = np.random.default_rng(num_tokens).random(num_tokens - 1) < bias
    return np.append(bits.astype(int), 2)


def assert_every_bit_counts_alike(
    tokens, relative, positions=None, construction=parity_transformer
):
    model = construction(c=SHARPNESS, dtype="float64")
    result: Any = compute_influence(
        model, tokens, method="incremental", target="logits", positions=positions
    )
    n = len(tokens)
    at = np.arange(n - 1) if positions is None else np.asarray(positions)
    found = (result.lower + result.upper)[at, 1 - tokens[at]] / 2
    normalised = construction is normalised_parity_transformer
    expected = 2 if normalised else parity_influence(n)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=0)
    assert result.substitutions == len(at)
    assert result.zeros == 0
    # The query token is neither changed nor put in another's place.
    assert np.isnan(result.upper[-1]).all()
    assert np.isnan(result.upper[:, 2]).all()


# With layer norm the logit goes from 1 to -1 at every bit, whatever the length.
@pytest.mark.parametrize(
    ("construction", "num_tokens", "digits"),
    [
        (parity_transformer, 64, 1e-12),
        (normalised_parity_transformer, 16, 1e-11),
        (parity_transformer, 10_000, 1e-10),
        (normalised_parity_transformer, 400, 1e-11),
    ],
    ids=["parity", "normalised parity", "long parity", "long normalised parity"],
)
def test_every_bit_counts_alike(construction, num_tokens, digits):
    for bias in (0.5, 0.0, 1.0):
        tokens = bits_and_query(num_tokens, bias)
        assert_every_bit_counts_alike(tokens, digits, construction=construction)


@long_inputs
@pytest.mark.slow
def test_bits_of_a_hundred_thousand_count_alike():
    n, rng = 100_000, np.random.default_rng(0)
    inner = rng.choice(np.arange(1, n - 2), 510, replace=False)
    positions = [0, *sorted(map(int, inner)), n - 2]
    assert_every_bit_counts_alike(bits_and_query(n), 1e-9, positions)


def test_another_sharpness_is_told_apart():
    model = parity_transformer(c=SHARPNESS + 1e-8, dtype="float64")
    tokens = bits_and_query(64)
    result = compute_influence(model, tokens, method="incremental", target="logits")
    assert abs(result.max / parity_influence(64) - 1) > 1e-10
    there = parity_influence(64, SHARPNESS + 1e-8)
    assert result.max == pytest.approx(there, rel=1e-12)
