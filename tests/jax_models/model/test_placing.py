"""How positions enter scores: turned pairs, and buckets of distances."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.reference_attention import bucket
from jax_models.model.distance import distance_buckets
from tests.bounds.attention_pieces import PIECES


def test_products_of_turned_queries_and_keys_depend_on_the_distance_alone():
    rotary = PIECES["part of rotary, interleaved"]["rotary"]
    q, k = np.random.default_rng(0).normal(size=(2, 6))
    turned = [rotary.turn(jnp.tile(x, (9, 1)), jnp.arange(9), 9) for x in (q, k)]
    scores = np.asarray(turned[0] @ turned[1].T)
    for distance in range(-8, 9):
        np.testing.assert_allclose(
            np.diff(np.diagonal(scores, distance)), 0, atol=1e-14
        )
    assert np.ptp(scores) > 0.1


@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_those_of_the_reference(both):
    n, count, most = 300, 32, 128
    found = distance_buckets(n, count, both, most)
    entry = {"kind": "buckets", "bidirectional": both, "max_distance": most}
    apart = np.arange(1 - n, n)
    expected = [bucket(entry, count, x) for x in apart.tolist()]
    np.testing.assert_array_equal(found, expected)
