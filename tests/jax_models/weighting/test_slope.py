"""The derivative of a softmax mean is its own, also where scores are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models import Softmax

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("tile", [4, 2])
def test_the_slope_in_each_score_is_weight_times_deviation(tile):
    """A maximum shares its derivative among equals, which softmax must not inherit."""
    rng = np.random.default_rng(0)
    drawn, values = rng.normal(size=4), rng.normal(size=(4, 3))
    weighting = Softmax()

    @jax.jit
    @jax.jacobian
    def slope(scores):
        tiles = [
            weighting.lift(
                scores[None, None, at : at + tile],
                jnp.asarray(values[None, at : at + tile]),
                jnp.arange(at, at + tile, dtype=jnp.int32),
                jnp.ones((1, tile), bool),
            )
            for at in range(0, 4, tile)
        ]
        whole = tiles[0] if len(tiles) == 1 else weighting.merge(*tiles)
        return weighting.read(whole)[0, 0]

    for tied in ((0, 1, 2, 3), (1, 3), ()):
        scores = drawn.copy()
        scores[list(tied)] = scores.max() + 0.5
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        expected = weights * (values - weights @ values).T
        np.testing.assert_allclose(slope(scores), expected, atol=1e-14)
