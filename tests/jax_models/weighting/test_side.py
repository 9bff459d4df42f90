"""What a weighting says of itself: which of equal keys it reads, and what touches a row."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, make_weighting

SEEN = jnp.ones((1, 3), bool)


@pytest.fixture(params=WEIGHTINGS)
def weighting(request):
    return make_weighting(request.param)


def weights(weighting, scores):
    return np.asarray(weighting.weights(jnp.asarray(scores)[None, None], SEEN)[0, 0])


def test_side_says_which_of_equal_keys_is_read(weighting):
    read = {1: [1, 0, 0], -1: [0, 0, 1], 0: [1 / 3, 1 / 3, 1 / 3]}[weighting.side]
    np.testing.assert_allclose(weights(weighting, [2.0, 2.0, 2.0]), read, rtol=1e-15)


def test_only_a_key_that_scores_enough_can_move_a_row(weighting):
    scores = [5.0, 3.0, 1.0]
    values, index = jnp.eye(3)[None], jnp.arange(3)
    summary = weighting.lift(jnp.asarray(scores)[None, None], values, index, SEEN)
    least = float(weighting.least_touching(summary, jnp.zeros((1, 1, 2)))[0, 0])
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
