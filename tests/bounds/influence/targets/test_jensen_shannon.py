"""The Jensen-Shannon divergence: its digits, and influences by every method."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import TARGETS
from bounds.influence.targets import jensen_shannon
from tests.bounds.influence.many_digits import MP
from tests.bounds.influence.targets.compared import (
    CASES,
    CHANGES,
    LOGITS,
    assert_influences,
    relative_error,
    softmax,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
TARGET = TARGETS["jensen_shannon"]()


def divergence(before, after):
    """Half the divergences of both from their mean."""
    total = MP.mpf(0)
    for p, q in zip(softmax(before), softmax(after), strict=True):
        mean = (p + q) / 2
        total += p * MP.log(p / mean) + q * MP.log(q / mean)
    return total / 2


def limit(logits, change):
    """Arguments of exponentials round by half a unit of themselves."""
    unit = float(np.finfo(logits.dtype).eps)
    return 16 * unit * (1 + np.abs(logits).max() + np.abs(change).max())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("logits", LOGITS)
def test_every_change_keeps_its_digits(logits, change):
    asked = LOGITS[logits], CHANGES[change]
    error, exact = relative_error(TARGET, divergence, *asked)
    assert 0 < exact <= math.log(2)
    assert error <= limit(*asked)


def test_digits_of_float32_are_kept_too():
    for logits in ("even", "usual", "peaked"):
        for change in CHANGES.keys() - {"of all alike"}:  # in float32 they are equal
            asked = [x.astype(np.float32) for x in (LOGITS[logits], CHANGES[change])]
            error, exact = relative_error(TARGET, divergence, *asked)
            assert error <= limit(*asked) or exact < 1e-30  # products underflow


def test_a_cancellation_is_noticed(plant):
    wrong = lambda h: h * jnp.tanh(h) - jnp.log(jnp.cosh(h))
    plant(jensen_shannon, "divergence_factor", wrong)
    error, _ = relative_error(TARGET, divergence, LOGITS["usual"], CHANGES["1e-12"])
    assert error > 1e-8


@pytest.mark.parametrize(("name", "method"), CASES)
def test_influences_are_those_of_the_definition(name, method):
    assert_influences(name, method, "jensen_shannon", divergence)
