"""Over all inputs without listing them: nothing is missed that listing finds."""

import dataclasses

import numpy as np
import pytest

import jax_models as jm
from bounds.curves.inputs import SampledInputs
from bounds.simulation import structure
from bounds.simulation.certificate import certified_temperature
from bounds.simulation.compute import consider
from bounds.simulation.measure import measure_hard_model
from bounds.simulation.structure import measure_structure
from tests.bounds.simulation.networks import INPUTS, LENGTH, draw_networks

SAMPLED = SampledInputs("random", (0, 1), None, 2, 0)
FIELDS = ("pull", "half_range", "odds", "score_size", "spread")


def both(model, mask="none"):
    attention = dataclasses.replace(model.layers[0].attention, mask=mask)
    layer = dataclasses.replace(model.layers[0], attention=attention)
    model = dataclasses.replace(model, layers=(layer,))
    considered = consider(model, LENGTH, SAMPLED, 0)
    assert considered.unlisted is not None
    return measure_structure(model, considered.unlisted), measure_hard_model(
        model, INPUTS
    )


@pytest.mark.parametrize(
    "mask", ["none", "future", pytest.param("strict_past", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("ties", [False, True], ids=["tieless", "tied"])
def test_it_is_never_better_than_listing_and_often_the_same(ties, mask):
    networks = draw_networks(13, 8, 1, ties=ties)
    same = 0
    for index in range(networks.count):
        structure, listed = both(networks.model(index), mask)
        assert structure.num_inputs == listed.num_inputs == len(INPUTS)
        (one,), (two,) = structure.heads, listed.heads
        assert one.gap <= two.gap * (1 + 1e-12)
        same += one.gap == pytest.approx(two.gap, rel=1e-9)
        assert (one.tied_rows > 0) or not two.tied_rows
        for name in FIELDS:
            # Equal rows of one input tie exactly, of two inputs they need not.
            assert np.all(
                getattr(one, name) >= np.multiply(getattr(two, name), 1 - 1e-12)
            )
        certified = certified_temperature(structure, 0.01)
        assert certified is not None
        best = certified_temperature(listed, 0.01)
        assert best is not None
        assert certified[0] <= best[0] * (1 + 1e-6)
    assert same > networks.count / 2


def test_exact_scores_need_no_list_of_inputs():
    """ONES at n = 300: 2^300 inputs, gap 1."""
    model = jm.build_preset("ones", dtype="float64")
    considered = consider(model, 300, SAMPLED, 1000)
    measure = measure_structure(model, considered.unlisted)
    assert considered.all_inputs
    assert measure.gap == 1
    assert measure.exact
    assert measure.num_inputs >= 2**299


def test_a_winner_that_rounding_could_decide_in_some_input_is_an_error():
    model = draw_networks(13, 1, 1, ties=False).model(0)
    gap = both(model)[0].gap
    attention = dataclasses.replace(
        model.layers[0].attention, weighting=jm.AverageHardmax(0.9 * gap)
    )
    layer = dataclasses.replace(model.layers[0], attention=attention)
    with pytest.raises(jm.TieError, match=r"layers\.0, head 0, row \d"):
        both(dataclasses.replace(model, layers=(layer,)))


def test_where_positions_tie_one_of_them_may_stand_lower():
    """Positions 1 and 2 can share the maximum, and 1 can hold another symbol instead."""
    scores, at = np.array([2.0, 2.0, 1.5, 0.0]), np.array([1, 2, 1, 3])
    gap, spread = structure._levels(
        scores, np.rint(scores / 1e-3), at, np.arange(4), -np.inf, 0.0, "row 0"
    )
    assert (gap, spread) == (0.5, 0.0)
    # Alone at the top, a position cannot stand below itself.
    gap, spread = structure._levels(
        scores[1:], np.rint(scores[1:] / 1e-3), np.array([1, 1, 3]), np.arange(3),
        -np.inf, 0.0, "row 0",
    )  # fmt: skip
    assert (gap, spread) == (1.5, None)
