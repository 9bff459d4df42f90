"""What the masks show."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from jax_models.mask import MASKS, visible


@pytest.mark.parametrize("mask", MASKS)
def test_a_row_sees_what_the_format_says(mask):
    rows, keys = np.asarray([4, 0, 2]), np.asarray([3, 4, 0, 1])
    found = visible(mask, jnp.asarray(rows), jnp.asarray(keys))
    full = reference.visible(mask, 5)
    np.testing.assert_array_equal(found, full[np.ix_(rows, keys)])
