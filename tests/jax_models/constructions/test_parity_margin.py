"""The logits of both PARITY transformers against closed forms, at every length."""

import math

import mpmath
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.constructions import normalised_parity_transformer, parity_transformer
from jax_models.constructions.normalised_parity import Coordinate
from tests.written import written

RELATIVE = 1e-12
UNIT = 2.0**-52
SHARPNESS = 1.0
SCALED = jm.InverseLogTemperature(0.75)
LENGTHS = (*range(1, 12), 32, 150)


def strings(length):
    """Random strings of all densities, then the query token."""
    rng = np.random.default_rng(length)
    density = np.append([0, 1, 1 / (length + 1)], rng.random(2))[:, None]
    bits = (rng.random((5, length)) < density).astype(int)
    return np.pad(bits, ((0, 0), (0, 1)), constant_values=2)


def query_logit(config, tensors, tokens):
    return reference.logits(config, tensors, tokens)[-1].item()


def sharpness(num_tokens, scaled):
    """c/tau."""
    return SHARPNESS * (math.log(num_tokens) / SCALED.scale if scaled else 1)


def closed_form(num_tokens, odd, c):
    """OUT of the construction without its factor 1/N, with 50 digits."""
    with mpmath.workdps(50):
        even, rest = mpmath.mpf((num_tokens + 1) // 2), num_tokens // 2
        mine, other = (rest, even) if odd else (even, rest)
        low, high = mpmath.exp(-2 * mpmath.mpf(c)), mpmath.exp(2 * mpmath.mpf(c))
        gap = 1 / (mine + other * low) - 1 / (mine + other * high)
        return gap if odd else -gap


def perturbed_logit(tokens, c, epsilon):
    """The logit of the normalised model with epsilon >= 0, by its docstring."""
    n, k = len(tokens), int((tokens == 1).sum())
    p = np.arange(n)
    variance = (2 + (tokens == 1) + ((k - p) ** 2 + 1) / n**2) / 9
    size = 1 / np.sqrt(1 + 3 * epsilon * n**2 * (variance + epsilon))
    signed = c * size[-1] * size * np.where(p % 2, -1.0, 1.0)
    behind = signed - signed[k]
    # Head 2 gives position k 1 / sum e^-behind, head 1 gives it 1 / sum e^behind; the
    # numerator of the difference has a sum of sinh in place of a difference of sums.
    gap = 2 * np.sinh(behind).sum() / np.exp(behind).sum() / np.exp(-behind).sum()
    out = size[k] * gap
    squared_factor = 1 / ((3 * size[-1] ** 2 + out**2) / 9 + epsilon)
    return -out / math.sqrt(out**2 + 9 * epsilon / squared_factor)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_logit_is_the_closed_form_at_every_length(scaled):
    temperature = SCALED if scaled else None
    config, tensors = written(
        parity_transformer(temperature=temperature, dtype="float64")
    )
    for length in LENGTHS:
        c = sharpness(length + 1, scaled)
        for tokens in strings(length):
            odd = (tokens == 1).sum() % 2 == 1
            expected = float(-closed_form(length + 1, odd, c) / (length + 1))
            assert expected < 0 if odd else expected > 0
            found = query_logit(config, tensors, tokens)
            assert found == pytest.approx(expected, rel=RELATIVE, abs=0)


@pytest.mark.parametrize(
    ("epsilon", "scaled"),
    [(0.0, False), (0.0, True), (1e-12, False), (1e-5, False), (1e-3, False)],
)
def test_layer_norm_makes_the_margin_one_and_a_constant_in_it_shrinks_it(
    epsilon, scaled
):
    config, tensors = written(
        normalised_parity_transformer(
            epsilon=epsilon, temperature=SCALED if scaled else None, dtype="float64"
        )
    )
    for length in LENGTHS:
        for tokens in strings(length):
            found = query_logit(config, tensors, tokens)
            expected = perturbed_logit(tokens, sharpness(length + 1, scaled), epsilon)
            assert (expected < 0) == ((tokens == 1).sum() % 2 == 1)
            assert abs(expected) < 1 if epsilon else abs(expected) == 1
            # The mean of a row is 0 up to N roundings of a row of size 1/N, and OUT is
            # N^2/size^2 times smaller than what its rows round to.
            relative = 4 * len(tokens) ** 2 * (1 + epsilon * len(tokens) ** 2) * UNIT
            assert found == pytest.approx(expected, rel=relative, abs=0)


def test_the_closed_form_sees_a_row_that_is_normalised_otherwise():
    """Without OTHER the row with the mark is larger than the rest."""
    config, tensors = written(
        normalised_parity_transformer(epsilon=1e-3, dtype="float64")
    )
    tensors["layers.0.ffn.w2"][
        [Coordinate.OTHER, Coordinate.OTHER + len(Coordinate)]
    ] = 0
    tokens = strings(9)[4]
    found = query_logit(config, tensors, tokens)
    expected = perturbed_logit(tokens, SHARPNESS, 1e-3)
    assert found != pytest.approx(expected, rel=1e-6)
