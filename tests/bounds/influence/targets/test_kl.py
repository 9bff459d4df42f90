"""KL(base || changed): its digits, and influences by every method."""

import numpy as np
import pytest

from bounds.influence import TARGETS
from bounds.influence.targets import kl
from tests.bounds.influence.many_digits import MP
from tests.bounds.influence.targets.compared import (
    CASES,
    assert_influences,
    relative_error,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
TARGET = TARGETS["kl"]()


def softmax(logits):
    weights = [MP.exp(x) for x in logits]
    return [x / sum(weights) for x in weights]


def divergence(before, after):
    """Sum of p log(p / q)."""
    pairs = zip(softmax(before), softmax(after), strict=True)
    return sum(p * MP.log(p / q) for p, q in pairs)


DRAW = np.random.default_rng(0)
LOGITS = {
    "even": np.zeros(5),
    "usual": DRAW.normal(size=5),
    "peaked": np.asarray([0.0, 35.0, 1.0, -2.0, 3.0]),
    "very peaked": np.asarray([0.0, 300.0, 1.0, -2.0, 3.0]),
    "two alike": np.asarray([40.0, 40.0, 0.0, 1.0, 2.0]),
}
CHANGES = {
    f"{size:g}": size * DRAW.normal(size=5) for size in 10.0 ** np.arange(-12, 3)
}
CHANGES["from one to another"] = np.asarray([1e3, -1e3, 0.0, 0.0, 0.0])
CHANGES["of all alike"] = 1 + CHANGES["1e-12"]
CHANGES["of one alone"] = np.asarray([0.0, 0.0, 1e-12, 0.0, 0.0])


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
