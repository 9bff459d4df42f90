"""The steepest slope of each activation is reached, and never passed."""

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.activation import GELU_CURVATURE, STEEPEST, activation_slopes


@pytest.mark.parametrize("kind", STEEPEST)
def test_slopes_reach_the_steepest_and_stay_within_it(kind):
    slopes = np.asarray(activation_slopes(kind, jnp.linspace(-9.0, 9.0, 90001)))
    assert STEEPEST[kind] - 1e-8 <= slopes.max() <= STEEPEST[kind]
    assert 1 - STEEPEST[kind] <= slopes.min() <= 1 - STEEPEST[kind] + 1e-8


def test_the_curvature_of_gelu_is_reached_and_never_passed():
    z = np.linspace(-9.0, 9.0, 90001)
    curvature = np.abs(np.diff(activation_slopes("gelu", jnp.asarray(z))) / np.diff(z))
    assert GELU_CURVATURE - 1e-7 <= curvature.max() <= GELU_CURVATURE
