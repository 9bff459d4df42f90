"""The logits of both PARITY transformers against closed forms, at every length."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.constructions import (
    normalised_parity_transformer,
    parity_transformer,
)
from jax_models.constructions.normalised_parity import HALF, Coordinate
from tests.written import written

RELATIVE = 1e-12
UNIT = 2.0**-52
SHARPNESS = 1.0
SCALED = jm.InverseLogTemperature(0.75)


def strings(length, count):
    """Random strings of all densities, then the query token."""
    rng = np.random.default_rng(length)
    density = np.append([0, 1, 1 / (length + 1)], rng.random(count - 3))[:, None]
    bits = (rng.random((count, length)) < density).astype(int)
    return np.concatenate([bits, np.full((count, 1), 2)], axis=1)


def normalise(config, tensors, name, rows):
    if f"{name}.scale" not in tensors:
        return rows
    centred = rows - rows.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1) + config["layer_norm_epsilon"])
    return centred / deviation[:, None] * tensors[f"{name}.scale"]


def query_row(config, tensors, tokens):
    """The final activation at the query, in plain NumPy.

    What the reference does of these models, without its n x n tables of masks and with
    one query in the last layer, so that hundreds of lengths take seconds.
    """
    n = len(tokens)
    y = tensors["embedding"][tokens] + reference.position_table(config, tensors, n)
    for depth, entry in enumerate(config["layers"]):
        part = f"layers.{depth}."
        query, key, value = (
            y @ tensors[f"{part}attention.{name}"].swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        if depth == len(config["layers"]) - 1:
            query, y = query[:, -1:], y[-1:]
        scores = query @ key.swapaxes(1, 2)
        schedule = entry["temperature"]
        if schedule is not None and n > 1:
            assert schedule["kind"] == "inverse_log"
            scores = scores * (np.log(n) / schedule["scale"])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads = weights / weights.sum(-1, keepdims=True) @ value
        heads = heads.swapaxes(0, 1).reshape(len(y), -1)
        summed = y + heads @ tensors[f"{part}attention.output"].T
        summed = normalise(config, tensors, f"{part}norm1", summed)
        hidden = summed @ tensors[f"{part}ffn.w1"].T + tensors[f"{part}ffn.b1"]
        added = np.maximum(hidden, 0) @ tensors[f"{part}ffn.w2"].T
        y = normalise(config, tensors, f"{part}norm2", summed + added)
    return y[-1]


def query_logit(config, tensors, tokens):
    return (query_row(config, tensors, tokens) @ tensors["readout.weight"].T).item()


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


at_every_length = pytest.mark.parametrize(
    ("lengths", "count"),
    [
        pytest.param([*range(1, 12), 32, 999], 5, id="some"),
        pytest.param([*range(1, 200), 999, 1000], 20, id="all", marks=pytest.mark.slow),
    ],
)


@pytest.mark.parametrize("scaled", [False, True])
@at_every_length
def test_the_logit_is_the_closed_form_at_every_length(scaled, lengths, count):
    temperature = SCALED if scaled else None
    config, tensors = written(
        parity_transformer(temperature=temperature, dtype="float64")
    )
    for length in lengths:
        c = sharpness(length + 1, scaled)
        for tokens in strings(length, count):
            odd = (tokens == 1).sum() % 2 == 1
            expected = float(-closed_form(length + 1, odd, c) / (length + 1))
            assert expected < 0 if odd else expected > 0
            found = query_logit(config, tensors, tokens)
            assert found == pytest.approx(expected, rel=RELATIVE, abs=0)


@pytest.mark.parametrize("scaled", [False, True])
@at_every_length
def test_the_norms_of_one_layer_take_away_one_factor_of_the_length(
    scaled, lengths, count
):
    temperature = SCALED if scaled else None
    config, tensors = written(
        normalised_parity_transformer(temperature=temperature, dtype="float64")
    )
    # Without the last neurons the query's other entries, +-1, stay beside OUT.
    tensors["layers.1.ffn.w2"] = np.zeros_like(tensors["layers.1.ffn.w2"])
    for length in lengths:
        c = sharpness(length + 1, scaled)
        for tokens in strings(length, count):
            row = query_row(config, tensors, tokens)
            found = row[Coordinate.OUT] / row[Coordinate.QUERY]
            odd = (tokens == 1).sum() % 2 == 1
            expected = float(closed_form(length + 1, odd, c))
            # N marks that should be 0 are as large as the mean of a row of size 1/N
            # rounds it: some N units of 2^-52 in all, beside the one mark that is 1.
            relative = 16 * len(tokens) * UNIT
            assert found == pytest.approx(expected, rel=relative, abs=0)


def test_the_closed_form_sees_a_row_that_is_normalised_otherwise():
    config, tensors = written(normalised_parity_transformer(dtype="float64"))
    tensors["layers.1.ffn.w2"] = np.zeros_like(tensors["layers.1.ffn.w2"])
    tokens = strings(9, 6)[5]
    odd = (tokens == 1).sum() % 2 == 1
    expected = float(closed_form(10, odd, SHARPNESS))
    right = query_row(config, tensors, tokens)
    assert right[Coordinate.OUT] / right[Coordinate.QUERY] == pytest.approx(expected)
    # Without OTHER the row with the mark is larger than the rest.
    tensors["layers.0.ffn.w2"][[Coordinate.OTHER, Coordinate.OTHER + HALF]] = 0
    wrong = query_row(config, tensors, tokens)
    assert wrong[Coordinate.OUT] / wrong[Coordinate.QUERY] != pytest.approx(
        expected, rel=0.01
    )


@pytest.mark.parametrize(
    ("epsilon", "scaled"),
    [(0.0, False), (0.0, True), (1e-12, False), (1e-5, False), (1e-3, False)],
)
@at_every_length
def test_layer_norm_makes_the_margin_one_and_a_constant_in_it_shrinks_it(
    epsilon, scaled, lengths, count
):
    config, tensors = written(
        normalised_parity_transformer(
            epsilon=epsilon, temperature=SCALED if scaled else None, dtype="float64"
        )
    )
    for length in lengths:
        for tokens in strings(length, count):
            found = query_logit(config, tensors, tokens)
            expected = perturbed_logit(tokens, sharpness(length + 1, scaled), epsilon)
            assert (expected < 0) == ((tokens == 1).sum() % 2 == 1)
            assert abs(expected) < 1 if epsilon else abs(expected) == 1
            # The mean of a row is 0 up to N roundings of a row of size 1/N, and OUT is
            # N^2/size^2 times smaller than what its rows round to.
            relative = 4 * len(tokens) ** 2 * (1 + epsilon * len(tokens) ** 2) * UNIT
            assert found == pytest.approx(expected, rel=relative, abs=0)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_bit_of_every_string_has_the_same_influence(length):
    c = 1.5
    config, tensors = written(parity_transformer(c=c, dtype="float64"))
    odd, even = (closed_form(length + 1, odd, c) for odd in (True, False))
    expected = float(odd - even) / (length + 1)
    if length % 2:
        assert expected == pytest.approx(4 * math.tanh(c) / (length + 1) ** 2)
    for string in itertools.product((0, 1), repeat=length):
        found = reference.influence(
            config,
            tensors,
            (*string, 2),
            target="logits",
            arithmetic=reference.multiprecision(40),
        )
        assert np.isnan(found[-1]).all()
        assert np.isnan(found[:, 2]).all()
        assert (np.isfinite(found).sum(axis=1)[:-1] == 1).all()
        # The model's own numbers are float64: p/N is rounded, the result is not.
        np.testing.assert_allclose(
            found[np.isfinite(found)], expected, rtol=1e-15, atol=0
        )
