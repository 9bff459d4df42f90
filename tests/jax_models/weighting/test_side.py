"""What a weighting says of itself: which of equal keys it reads, and what touches a row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, make_weighting

pytestmark = pytest.mark.usefixtures("quick_compilation")
SEEN = jnp.ones((1, 3), bool)


@pytest.fixture(params=WEIGHTINGS)
def weighting(request):
    return make_weighting(request.param)


@jax.jit
def run(weighting, scores):
    """Weights, and the least score of a key that could move the row."""
    scores, values = scores[None, None], jnp.eye(3)[None]
    summary = weighting.lift(scores, values, jnp.arange(3), SEEN)
    least = weighting.least_touching(summary, jnp.zeros((1, 1, 2)))
    return weighting.weights(scores, SEEN)[0, 0], least[0, 0]


def weights(weighting, scores):
    return np.asarray(run(weighting, np.asarray(scores))[0])


def test_side_says_which_of_equal_keys_is_read(weighting):
    read = {1: [1, 0, 0], -1: [0, 0, 1], 0: [1 / 3, 1 / 3, 1 / 3]}[weighting.side]
    np.testing.assert_allclose(weights(weighting, [2.0, 2.0, 2.0]), read, rtol=1e-15)


def test_only_a_key_that_scores_enough_can_move_a_row(weighting):
    scores = [5.0, 3.0, 1.0]
    least = float(run(weighting, np.asarray(scores))[1])
    before = weights(weighting, scores)
    for score in (-4.0, 2.9, 4.9, 5.1):
        moved = weights(weighting, [5.0, 3.0, score])
        assert (moved == before).all() or max(score, scores[2]) >= least
    if weighting.hard:
        assert scores[2] < least <= scores[1]
        assert 0 < weighting.resolution(jnp.float64)
    else:
        assert least == -np.inf
        assert weighting.resolution(jnp.float64) == 0
