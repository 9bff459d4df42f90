"""Compiled programs under softmax at the temperature of Theorem 26."""

import math

import numpy as np
import pytest

from jax_models.programs.rasp import (
    PROGRAMS,
    build_model,
    check_program,
    evaluate_program,
    plan_program,
    read_result,
)
from tests.jax_models.programs.rasp import hard_attention

EPSILON = 0.01


def theorem_26(plan, model, length):
    """tau(n) = gamma / (2 [log(n x/E) + L log(2 K2)]), in logarithms.

    The constants of docs/theory/softmax-approximation.md, section 9, for H heads whose values
    add up, and one coordinate more for the biases.
    """
    layers, attentions = len(model.layers), [one.attention for one in model.layers]
    d = model.width + 1
    key_width = max(one.key_width for one in attentions)
    heads = max(one.num_heads for one in attentions)
    hidden = max(len(one.feed_forward.b1) for one in model.layers)
    arrays = [
        array
        for one in model.layers
        for array in (
            *vars(one.feed_forward).values(),
            *(getattr(one.attention, name) for name in ("query", "key", "value")),
            *(getattr(one.attention, f"{name}_bias") for name in ("query", "key")),
        )
        if array is not None and not isinstance(array, str)
    ]
    # An output matrix of 0 and 1 with one 1 in a column: O V has the entries of V.
    largest = max(1.0, *(float(np.abs(np.asarray(array)).max()) for array in arrays))
    value = heads * d * largest
    block = 1 + hidden * d * largest**2
    log_growth = math.log(1 + value) + math.log(block + hidden * largest**2 + largest)
    log_k1 = math.log(6 * d**2 * key_width * largest**2) + (layers - 1) * log_growth
    log_k2 = math.log(block) + max(
        math.log(1 + value), math.log(2 * value) + (layers - 1) * log_growth
    )
    gamma = plan.gap(length)
    x = max(1, np.abs(model.position.encode(length, model.width)).max())
    log_e = min(math.log(EPSILON), math.log(gamma / (2 * x)) - log_k1)
    return gamma / (
        2 * (math.log(length * x) - log_e + layers * (math.log(2) + log_k2))
    )


@pytest.mark.parametrize("name", ["majority", "induction_head", "dyck2"])
def test_softmax_at_the_temperature_of_theorem_26_says_the_same(name):
    text, alphabet = PROGRAMS[name]
    program = check_program(text, alphabet)
    plan = plan_program(program)
    model = build_model(plan, np.float64)
    for length in (1, 2, 6):
        draw = np.random.default_rng(length)
        strings = draw.integers(0, len(alphabet), (40, length))
        tau = theorem_26(plan, model, length)
        soft = hard_attention.run(model, strings, temperature=tau)
        hard = hard_attention.run(model, strings)
        assert np.abs(soft.logits - hard.logits).max() <= EPSILON
        wanted = evaluate_program(program, strings)
        assert np.array_equal(read_result(plan, soft.logits), wanted)
    # The check can fail: softmax as hot as the gap says something else.
    hot = hard_attention.run(model, strings, temperature=4 * plan.gap(6))
    assert not np.array_equal(read_result(plan, hot.logits), wanted)
