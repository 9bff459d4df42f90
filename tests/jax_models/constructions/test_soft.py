"""Closed forms of what FIRST computes with soft attention."""

import math

import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.constructions import first_transformer
from tests.written import written


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
