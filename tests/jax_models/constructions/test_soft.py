"""Closed forms of what the soft-attention constructions compute."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.constructions import first_transformer, parity_transformer
from tests.written import written


def parity_logit(num_tokens, odd, c):
    """The logit of the PARITY transformer for an even or an odd number of ones."""
    with mpmath.workdps(50):
        even, odd_places = mpmath.mpf((num_tokens + 1) // 2), num_tokens // 2
        mine, other = (odd_places, even) if odd else (even, odd_places)
        c = mpmath.mpf(c)
        gap = 1 / (mine + other * mpmath.exp(-2 * c))
        gap -= 1 / (mine + other * mpmath.exp(2 * c))
        return (-gap if odd else gap) / num_tokens


def parity_influence(num_tokens, c):
    """The distance of the two logits."""
    with mpmath.workdps(50):
        return float(
            parity_logit(num_tokens, False, c) - parity_logit(num_tokens, True, c)
        )


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_parity_logit_is_the_closed_form_on_every_string(c):
    config, tensors = written(parity_transformer(c=c, dtype="float64"))
    for length in range(7):
        for string in itertools.product((0, 1), repeat=length):
            found = reference.logits(config, tensors, (*string, 2))[-1, 0]
            expected = float(parity_logit(length + 1, sum(string) % 2 == 1, c))
            assert found == pytest.approx(expected, rel=1e-13, abs=0)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_bit_of_every_string_has_the_same_influence(length):
    c = 1.5
    config, tensors = written(parity_transformer(c=c, dtype="float64"))
    expected = parity_influence(length + 1, c)
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


def sharp_hat(config, tensors):
    """The paper's second difference in place of the flat hat: the same on integers."""
    changed = dict(tensors)
    w1 = np.zeros_like(tensors["layers.0.ffn.w1"])
    gap, unit, match = 3, 4, 5
    w1[:3, gap] = 1.0
    w1[:3, unit] = [1.0, 0.0, -1.0]
    w2 = np.zeros_like(tensors["layers.0.ffn.w2"])
    w2[match, :3] = [1.0, -2.0, 1.0]
    changed.update({"layers.0.ffn.w1": w1, "layers.0.ffn.w2": w2})
    return config, changed


def test_the_flat_hat_loses_no_digits_where_the_sharp_one_does():
    # In exact arithmetic on the model's rounded position encoding p/N.
    exact = reference.multiprecision(40)
    model = written(parity_transformer(c=1.0, dtype="float32"))
    errors = {}
    for name, (config, tensors) in {"flat": model, "sharp": sharp_hat(*model)}.items():
        tokens = [0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 2]
        found = reference.logits(config, tensors, tokens, exact)[-1, 0]
        expected = parity_logit(11, True, 1.0)
        errors[name] = abs(float(found / expected - 1))
    assert errors["flat"] < 1e-15
    assert errors["sharp"] > 1e-8


@pytest.mark.parametrize("length", [999, 1000])
def test_parity_keeps_its_margin_on_long_strings(length):
    model = parity_transformer(c=1.0, dtype="float64")
    for seed, bias in ((0, 0.5), (1, 0.02), (2, 0.98)):
        bits = np.random.default_rng(seed).random(length) < bias
        tokens = np.append(bits.astype(int), 2)
        found = float(jm.apply_logits(model, tokens)[-1, 0])
        expected = float(parity_logit(length + 1, bits.sum() % 2 == 1, 1.0))
        assert found == pytest.approx(expected, rel=1e-11, abs=0)


def first_influence(num_tokens, log_weight):
    weight = math.exp(log_weight)
    return weight / (weight + num_tokens - 1)


@pytest.mark.parametrize("c", [-1.0, 0.0, 2.0])
def test_only_the_first_bit_influences_first(c):
    config, tensors = written(first_transformer(c=c, dtype="float64"))
    for tokens in ([1, 2], [0, 1, 1, 0, 2], [1, 1, 0, 0, 1, 2]):
        found = reference.influence(config, tensors, tokens, target="logits")
        expected = first_influence(len(tokens), c)
        assert found[0, 1 - tokens[0]] == pytest.approx(expected, rel=1e-14)
        assert (found[1:-1][np.isfinite(found[1:-1])] == 0).all()
        logit = reference.logits(config, tensors, tokens)[-1, 0]
        sign = 1 if tokens[0] else -1
        assert logit == pytest.approx(sign * expected / 2, rel=1e-14)


def test_a_temperature_of_one_over_log_n_keeps_the_first_bit_visible():
    model = first_transformer(
        temperature=jm.InverseLogTemperature(1.0), dtype="float64"
    )
    config, tensors = written(model)
    for length in (2, 10, 100):
        tokens = np.append(np.zeros(length - 1, int), 2)
        logit = reference.logits(config, tensors, tokens)[-1, 0]
        assert logit == pytest.approx(-length / (2 * (2 * length - 1)), rel=1e-13)
