"""What the masks show."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from jax_models.model.mask import MASKS, SIGHTS, sees_any, visible


@pytest.mark.parametrize("mask", MASKS)
def test_a_row_sees_what_the_format_says(mask):
    rows, keys = np.asarray([4, 0, 2]), np.asarray([3, 4, 0, 1])
    found = visible(mask, jnp.asarray(rows), jnp.asarray(keys))
    full = reference.visible(mask, 5)
    np.testing.assert_array_equal(found, full[np.ix_(rows, keys)])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_what_a_mask_says_of_itself_is_what_it_shows(mask, length):
    at, sight = np.arange(length), SIGHTS[mask]
    shown = np.asarray(visible(mask, jnp.asarray(at), jnp.asarray(at)))
    assert (np.diag(shown) == sight.itself).all()
    assert (shown[np.tril_indices(length, -1)] == sight.before).all()
    assert (shown[np.triu_indices(length, 1)] == sight.after).all()
    assert sight.everything == reference.visible(mask, 5).all()
    assert [sight.count(i, length) for i in range(length)] == shown.sum(1).tolist()
    found = sees_any(mask, jnp.asarray(at), length)
    np.testing.assert_array_equal(found, shown.any(1))
