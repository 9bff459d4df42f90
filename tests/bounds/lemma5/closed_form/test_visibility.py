"""What a row sees under a mask, counted one by one."""

import itertools

import numpy as np
import pytest

from bounds.lemma5.closed_form.masked_recursion import visible_changes
from jax_models.model.mask import MASKS, SIGHTS, visible

LENGTH = 5
INDEX = np.arange(LENGTH)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("position", [None, 0, 2, 4])
def test_changed_rows_are_those_that_are_seen(mask, position):
    """Row i is changed, and of the others those that are said to be."""
    seen = np.asarray(visible(SIGHTS[mask], INDEX, INDEX))
    places = INDEX if position is None else [position]
    total = seen.sum(axis=1)
    for bits in itertools.product([False, True], repeat=LENGTH):
        changed = np.array(bits)
        if position is not None and changed[position]:
            continue  # as said, of the other rows
        found = visible_changes(mask, changed, position)
        # [i, j]: what row j sees if row i is the changed one.
        counts = np.array(
            [(seen & (changed | (i == INDEX))).sum(axis=1) for i in places]
        )
        others = np.array(places)[:, None] != INDEX
        most = np.max(counts, axis=0, where=others, initial=0)
        own = [counts[at, i] for at, i in enumerate(places)]
        if position is None:
            # A row that sees all changed rows but one may be held to see them all.
            assert (found.present[:LENGTH] >= most).all()
            assert (found.present[:LENGTH] <= np.minimum(most + 1, total)).all()
        else:
            np.testing.assert_array_equal(found.present[:LENGTH], most)
        np.testing.assert_array_equal(found.present[LENGTH:], own)
        np.testing.assert_array_equal(found.total, [*total, *total[places]])
        assert found.sees.tolist() == [*(total > 0), (total[places] > 0).any()]
        assert found.reached.tolist() == [*(found.present[:LENGTH] > 0), max(own) > 0]
