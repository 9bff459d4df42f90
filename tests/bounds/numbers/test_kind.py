"""An answer is exact where its radius is small beside it, and only there."""

import numpy as np
import pytest

from bounds.numbers.kind import (
    kind_of,
    kind_of_ends,
    kind_of_largest,
)


@pytest.mark.parametrize(
    ("value", "lower", "upper", "kind"),
    [
        (1.0, 0.995, 1.005, "exact"),
        (1.0, 0.98, 1.005, "enclosure"),
        (1.0, 0.995, 1.02, "enclosure"),  # another may be larger
        (0.0, 0.0, 0.0, "exact"),  # nothing that is read has moved
        (0.0, 0.0, 1.7, "enclosure"),
        (0.0, 0.0, 1e-300, "enclosure"),
        (np.nan, np.nan, np.nan, "enclosure"),
        (1.0, 1.0, np.nan, "enclosure"),
        (1.0, np.nan, 1.0, "enclosure"),
        (np.inf, 0.0, np.inf, "enclosure"),
    ],
)
def test_a_small_radius_is_exact(value, lower, upper, kind):
    assert kind_of(value, lower, upper) == kind


@pytest.mark.parametrize("sign", [1, -1])
def test_many_are_what_the_largest_is(sign):
    values = sign * np.array([[-2.0, np.nan], [0.5, 1e-9]])
    wide = np.array([[1e-3, np.nan], [0.4, 1e-3]])
    assert kind_of_largest(values, values - wide, values + wide) == "exact"
    wide[0, 0] = 0.1
    assert kind_of_largest(values, values - wide, values + wide) == "enclosure"
    wide[0, 0], wide[1, 0] = 0.0, 2.0  # which may be the largest
    assert kind_of_largest(values, values - wide, values + wide) == "enclosure"


@pytest.mark.parametrize(
    ("lower", "upper", "enclosed", "kind"),
    [
        (0.995, 1.005, True, "exact"),
        (-1.005, -0.995, True, "exact"),
        (0.98, 1.02, True, "enclosure"),
        (-1e-300, 1e-300, True, "enclosure"),
        (0.0, 0.0, True, "exact"),
        (1.0, 1.0, True, "exact"),
        (1.0, 1.0, False, "estimated"),
        (0.98, 1.02, False, "estimated"),  # a screen's, without what rounds
    ],
)
def test_one_of_many_is_what_its_ends_say(lower, upper, enclosed, kind):
    assert kind_of_ends(lower, upper, enclosed) == kind


def test_nothing_is_exact():
    nothing = np.full((2, 2), np.nan)
    assert kind_of_largest(nothing, nothing, nothing) == "exact"
