"""What the masks show."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from jax_models.model.mask import MASKS, SIGHTS, sees_any, visible

windows = pytest.mark.parametrize("window", [None, 1, 3])


def sight_of(mask, window):
    return dataclasses.replace(SIGHTS[mask], window=window)


@windows
@pytest.mark.parametrize("mask", MASKS)
def test_a_row_sees_what_the_format_says(mask, window):
    rows, keys = np.asarray([4, 0, 2]), np.asarray([3, 4, 0, 1])
    found = visible(sight_of(mask, window), jnp.asarray(rows), jnp.asarray(keys))
    full = reference.visible(mask, 5, window)
    np.testing.assert_array_equal(found, full[np.ix_(rows, keys)])


@windows
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", [1, 5])
def test_what_a_mask_says_of_itself_is_what_it_shows(mask, length, window):
    at, sight = np.arange(length), sight_of(mask, window)
    shown = np.asarray(visible(sight, jnp.asarray(at), jnp.asarray(at)))
    assert (np.diag(shown) == sight.itself).all()
    far = np.abs(at - at[:, None]) > sight.reach
    assert not shown[far].any()
    assert (shown[np.tril(~far, -1)] == sight.before).all()
    assert (shown[np.triu(~far, 1)] == sight.after).all()
    assert sight.everything == reference.visible(mask, 5, window).all()
    assert [sight.count(i, length) for i in range(length)] == shown.sum(1).tolist()
    first, end = (np.asarray(x)[:, None] for x in sight.run(jnp.asarray(at), length))
    np.testing.assert_array_equal((first <= at) & (at < end), shown)
    found = sees_any(sight, jnp.asarray(at), length)
    np.testing.assert_array_equal(found, shown.any(1))
