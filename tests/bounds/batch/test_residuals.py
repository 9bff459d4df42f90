"""What is learnt of cells that are alike holds for others as far as they are alike."""

import math

import numpy as np
import pytest

from bounds.batch import residuals
from bounds.batch.residuals import Place, learn_residuals

SIZES = (1.0, 2.0, 4.0, 8.0)
KINDS = [(a, b) for a in ("a=1", "a=2") for b in ("b=1", "b=2")]


def effect(place):
    """Two effects, one of both together, and one that grows with the size."""
    first, second = place.levels
    together = 0.8 if (first, second) == ("a=2", "b=2") else 0.0
    return (
        1.5 * (first == "a=2") - 0.7 * (second == "b=2") + together * place.sizes[0] / 4
    )


PLACES = [Place(kinds, (size,)) for kinds in KINDS for size in SIZES]


def test_measured_places_are_given_back():
    learnt = learn_residuals(PLACES, [effect(place) for place in PLACES])
    expected = [effect(place) for place in PLACES]
    np.testing.assert_allclose(learnt.at(PLACES), expected, atol=0.1)


def test_effects_of_single_values_add_up_where_their_pair_was_not_measured():
    def plain(place):
        return 1.5 * (place.levels[0] == "a=2") - 0.7 * (place.levels[1] == "b=2")

    seen = [place for place in PLACES if place.levels != ("a=2", "b=2")]
    hidden = [place for place in PLACES if place not in seen]
    learnt = learn_residuals(seen, [plain(place) for place in seen])
    assert np.abs(learnt.at(hidden) - 0.8).max() < math.log(2) / 2


def test_what_two_values_do_together_is_learnt_from_other_sizes():
    seen = [place for place in PLACES if place.sizes != (4.0,)]
    hidden = [place for place in PLACES if place not in seen]
    learnt = learn_residuals(seen, [effect(place) for place in seen])
    expected = np.array([effect(place) for place in hidden])
    assert np.abs(learnt.at(hidden) - expected).max() < 0.3
    # Effects alone, which do not know of the pair, would not do.
    assert (
        np.abs(expected - [effect(Place(p.levels, (0.0,))) for p in hidden]).max() > 0.3
    )


def test_one_outlier_of_equal_cells_is_outvoted():
    places = [PLACES[0]] * 5 + [PLACES[5]] * 5
    learnt = learn_residuals(places, [0.1, 0.1, 6.0, 0.1, 0.1] + [-0.1] * 5)
    np.testing.assert_allclose(
        learnt.at([PLACES[0], PLACES[5]]), [0.1, -0.1], atol=0.05
    )


def test_far_from_everything_the_formula_is_left_alone():
    learnt = learn_residuals(PLACES[:4], [2.0] * 4)
    (far,) = learnt.at([Place(("a=9", "b=9"), (1e3,))])
    assert abs(far) < 0.1


def test_many_predictions_are_those_of_each(monkeypatch):
    learnt = learn_residuals(PLACES, [effect(place) for place in PLACES])
    expected = learnt.at(PLACES)
    monkeypatch.setattr(residuals, "BLOCK", 3)
    np.testing.assert_allclose(learnt.at(PLACES), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("places", [[], PLACES[:1]])
def test_there_may_be_nothing_to_predict_or_one_place(places):
    assert learn_residuals(PLACES[:1], [0.5]).at(places).shape == (len(places),)
