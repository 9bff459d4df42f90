"""KL(base || changed): its digits, and influences by every method."""

import numpy as np
import pytest

from bounds.influence import TARGETS
from bounds.influence.targets import kl
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
TARGET = TARGETS["kl"]()


def divergence(before, after):
    """Sum of p log(p / q)."""
    pairs = zip(softmax(before), softmax(after), strict=True)
    return sum(p * MP.log(p / q) for p, q in pairs)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("logits", LOGITS)
def test_every_change_keeps_its_digits(logits, change):
    error, exact = relative_error(TARGET, divergence, LOGITS[logits], CHANGES[change])
    assert exact > 0
    # An exponential's argument rounds by half a unit of itself.
    assert error <= 16 * 2.0**-52 * (1 + np.abs(LOGITS[logits]).max())


def test_digits_of_float32_are_kept_too():
    for logits in ("even", "usual", "peaked"):
        for change in CHANGES.keys() - {"of all alike"}:  # in float32 they are equal
            base, moved = (
                x.astype(np.float32) for x in (LOGITS[logits], CHANGES[change])
            )
            error, exact = relative_error(TARGET, divergence, base, moved)
            limit = 16 * 2.0**-23 * (1 + np.abs(base).max())
            assert error <= limit or exact < 1e-30  # products of what underflows


@pytest.mark.parametrize(
    ("name", "wrong", "logits", "change"),
    [
        ("exponential_remainder", lambda c: np.e**c - 1 - c, "usual", "1e-12"),
        ("relative_to_likeliest", lambda _, change: change, "usual", "of all alike"),
    ],
)
def test_a_cancellation_is_noticed(name, wrong, logits, change, plant):
    plant(kl, name, wrong)
    error, _ = relative_error(TARGET, divergence, LOGITS[logits], CHANGES[change])
    assert error > 1e-8


@pytest.mark.parametrize(("name", "method"), CASES)
def test_influences_are_those_of_the_definition(name, method):
    assert_influences(name, method, "kl", divergence)
