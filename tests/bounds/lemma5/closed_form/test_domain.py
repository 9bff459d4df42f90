"""What is no number of its range is a ValueError that names it, whatever it is."""

from fractions import Fraction

import numpy as np
import pytest

from bounds.numbers.statements import nonnegative, positive, probability, whole

NO_NUMBERS = [None, "4", b"4", [], [1.0], {}, 1j, object(), np.zeros(2), float("nan")]


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, -1, -(10**400)], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda x: nonnegative("size", x), "expected a number >= 0"),
        (lambda x: positive("size", x), "expected a finite number > 0"),
        (lambda x: whole("size", x, 0), "expected an integer >= 0"),
    ],
)
def test_what_is_no_such_number_is_named(check, expected, value):
    with pytest.raises(ValueError, match=rf"^size is .*, {expected}$"):
        check(value)


@pytest.mark.parametrize("value", [None, "a", "1/0", [], 1, 0, 0.5])
def test_what_is_no_probability_is_named(value):
    with pytest.raises(ValueError, match=r"^share is .*, expected "):
        probability("share", value)


def test_numbers_of_every_kind_are_taken():
    assert nonnegative("size", np.float32(2)) == 2.0
    assert positive("size", Fraction(1, 2)) == 0.5
    assert whole("size", 10**400, 1) == 10**400
    assert whole("size", np.int32(3), 1) == whole("size", 3.0, 1) == 3
    assert probability("share", "7/20") == Fraction(7, 20)
