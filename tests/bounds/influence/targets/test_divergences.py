"""Divergences of two outputs: their digits, and influences by every method."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import TARGETS
from bounds.influence.targets import jensen_shannon, kl
from tests.bounds.influence.many_digits import MP
from tests.bounds.influence.targets.compared import (
    CASES,
    CHANGES,
    LOGITS,
    assert_influences,
    relative_error,
    softmax,
)


def of_base(before, after):
    """KL(base || changed): the sum of p log(p / q)."""
    pairs = zip(softmax(before), softmax(after), strict=True)
    return sum(p * MP.log(p / q) for p, q in pairs)


def of_both(before, after):
    """Jensen-Shannon: half the divergences of both from their mean."""
    total = MP.mpf(0)
    for p, q in zip(softmax(before), softmax(after), strict=True):
        mean = (p + q) / 2
        total += p * MP.log(p / mean) + q * MP.log(q / mean)
    return total / 2


def roundoff(logits):
    """Arguments of exponentials round by half a unit of themselves."""
    return 16 * float(np.finfo(logits.dtype).eps) * (1 + np.abs(logits).max())


def roundoff_of_both(logits, change):
    unit = 16 * float(np.finfo(logits.dtype).eps)
    return roundoff(logits) + unit * np.abs(change).max()


# The definition, the largest error relative to the value, the largest value.
DIVERGENCES = {
    "kl": (of_base, lambda logits, _: roundoff(logits), math.inf),
    "jensen_shannon": (of_both, roundoff_of_both, math.log(2)),
}
every = pytest.mark.parametrize("name", DIVERGENCES)


@every
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("logits", LOGITS)
def test_every_change_keeps_its_digits(logits, change, name):
    defined, limit, most = DIVERGENCES[name]
    asked = LOGITS[logits], CHANGES[change]
    error, exact = relative_error(TARGETS[name](), defined, *asked)
    assert 0 < exact <= most
    assert error <= limit(*asked)


@every
def test_digits_of_float32_are_kept_too(name):
    defined, limit, _ = DIVERGENCES[name]
    for logits in ("even", "usual", "peaked"):
        for change in CHANGES.keys() - {"of all alike"}:  # in float32 they are equal
            asked = [x.astype(np.float32) for x in (LOGITS[logits], CHANGES[change])]
            error, exact = relative_error(TARGETS[name](), defined, *asked)
            assert error <= limit(*asked) or exact < 1e-30  # products underflow


@pytest.mark.parametrize(
    ("module", "name", "wrong", "change"),
    [
        (kl, "exponential_remainder", lambda c: np.e**c - 1 - c, "1e-12"),
        (kl, "relative_to_likeliest", lambda _, change: change, "of all alike"),
        (
            jensen_shannon,
            "divergence_factor",
            lambda h: h * jnp.tanh(h) - jnp.log(jnp.cosh(h)),
            "1e-12",
        ),
    ],
)
def test_a_cancellation_is_noticed(module, name, wrong, change, plant):
    plant(module, name, wrong)
    target = module.__name__.rpartition(".")[2]
    defined, *_ = DIVERGENCES[target]
    asked = LOGITS["usual"], CHANGES[change]
    error, _ = relative_error(TARGETS[target](), defined, *asked)
    assert error > 1e-8


@pytest.mark.parametrize(
    ("name", "model", "method"),
    # Every model and method of one, and of the other what compares two rows.
    [*(("kl", *case) for case in CASES), *(("jensen_shannon", *x) for x in CASES[::3])],
)
def test_influences_are_those_of_the_definition(name, model, method):
    assert_influences(model, method, name, DIVERGENCES[name][0])
