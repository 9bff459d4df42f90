"""PARITY's influence, 4 tanh(c) / N^2, beside activations of order 1."""

from typing import Any

import numpy as np
import pytest

from benchmarks.published_parity import bit_influence
from bounds.influence import compute_influence
from jax_models.constructions import normalised_parity_transformer, parity_transformer
from tests.long_inputs import long_inputs

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


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("num_tokens", [64, pytest.param(65, marks=pytest.mark.slow)])
def test_every_bit_of_a_short_string_counts_alike(num_tokens):
    for bias in (0.5, 0.0, 1.0, 0.05):
        tokens = bits_and_query(num_tokens, bias)
        assert_every_bit_counts_alike(tokens, 1e-12)


# With layer norm the logit goes from 1 to -1 at every bit, whatever the length.
@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("num_tokens", [16, pytest.param(400, marks=pytest.mark.slow)])
def test_a_layer_norm_without_epsilon_keeps_the_influence_of_every_bit(num_tokens):
    tokens = bits_and_query(num_tokens)
    assert_every_bit_counts_alike(
        tokens, 1e-11, construction=normalised_parity_transformer
    )


@pytest.mark.slow
@pytest.mark.parametrize(("num_tokens", "digits"), [(1000, 1e-11), (10_000, 1e-10)])
def test_every_bit_of_a_long_string_counts_alike(num_tokens, digits):
    assert_every_bit_counts_alike(bits_and_query(num_tokens), digits)


@long_inputs
@pytest.mark.slow
def test_bits_of_a_hundred_thousand_count_alike():
    n, rng = 100_000, np.random.default_rng(0)
    inner = rng.choice(np.arange(1, n - 2), 510, replace=False)
    positions = [0, *sorted(map(int, inner)), n - 2]
    assert_every_bit_counts_alike(bits_and_query(n), 1e-9, positions)


def test_a_subtraction_would_not_do():
    """At a thousand tokens it has lost digits, and its enclosure says so."""
    model = parity_transformer(c=SHARPNESS, dtype="float64")
    tokens = bits_and_query(1000)
    result = compute_influence(
        model, tokens, method="exhaustive", target="logits", positions=[0, 500, 998]
    )
    expected = parity_influence(1000)
    assert result.max_lower <= expected <= result.max_upper
    assert result.max_upper - result.max_lower > 1e-10 * expected


@pytest.mark.usefixtures("quick_compilation")
def test_another_sharpness_is_told_apart():
    model = parity_transformer(c=SHARPNESS + 1e-8, dtype="float64")
    tokens = bits_and_query(64)
    result = compute_influence(model, tokens, method="incremental", target="logits")
    assert abs(result.max / parity_influence(64) - 1) > 1e-10
    assert result.max == pytest.approx(
        parity_influence(64, SHARPNESS + 1e-8), rel=1e-12
    )
