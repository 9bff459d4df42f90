"""Enclosures that hold or meet, and refusals of one line."""

import contextlib

import numpy as np
import pytest

import jax_models as jm


@contextlib.contextmanager
def refused(message, error: type[Exception] = jm.InputError):
    """Expects an error of one line in which the pattern is found."""
    with pytest.raises(error, match=message) as caught:
        yield
    assert "\n" not in str(caught.value)


def encloses(found, exact, slack=0.0):
    """Whether the ends, moved by a slack, hold every exact value, and there are no others."""
    there = ~np.isnan(exact)
    np.testing.assert_array_equal(~np.isnan(found.upper), there)
    held = (found.lower - slack <= exact) & (exact <= found.upper + slack)
    return bool(held[there].all())


def meet(one, other):
    """Whether enclosures of the same values have a value in common, everywhere."""
    there = ~np.isnan(one.upper)
    np.testing.assert_array_equal(~np.isnan(other.upper), there)
    met = (one.lower <= other.upper) & (other.lower <= one.upper)
    return bool(met[there].all())
