"""Groups of rows whose keys do not span the space."""

import numpy as np
import pytest

from bounds.influence.screening.envelopes import group_rows


@pytest.mark.parametrize("seed", range(8))
def test_keys_of_a_plane_are_grouped_too(seed):
    """Rounding leaves eigenvalues below 0 where keys do not span the space."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(64, 2)) @ rng.normal(size=(2, 6))
    found = group_rows(rng.normal(size=(64, 6)), keys, rng.normal(size=64), 8)
    assert found.shape == (8, 8)
    assert sorted(found.ravel()) == list(range(64))
