"""Places are told apart by their encodings; those that hardly differ count as equal."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.inputs.classes import (
    Places,
    classify,
    distinct_places,
    equal_rows,
)
from jax_models.model.position import PositionTable
from tests.bounds.influence.models import build

APART = np.random.default_rng(0).normal(size=(9, 4))


def model(position):
    built = build({"num_layers": 1, "weighting": "softmax"})
    return dataclasses.replace(built, position=position)


def table(*rows):
    """Rows of `APART`, at the width of the model."""
    width = build({"num_layers": 1, "weighting": "softmax"}).width
    wide = np.zeros((len(rows), width))
    wide[:, :4] = APART[list(rows)]
    return PositionTable(jnp.asarray(wide))


def test_zeros_are_equal_whatever_their_sign():
    rows = np.array(table(0, 1, 0).table)
    rows[2] = np.where(rows[2] == 0, -0.0, rows[2])
    assert equal_rows(rows).tolist() in ([0, 1, 0], [1, 0, 1])


def test_equal_first_coordinates_are_not_equal_places():
    position = table(0, 1, 2)
    same_first = position.table.at[:, 0].set(1.0)
    assert distinct_places(model(PositionTable(same_first)), 3).count == 3


@pytest.mark.parametrize("seed", range(5))
def test_a_class_knows_the_two_outermost_members_at_each_end(seed):
    n, query, rng = 12, 4, np.random.default_rng(seed)
    tokens, places = rng.integers(0, 3, (2, n))
    found = classify(tokens, Places(np.zeros((3, 1)), places), query)
    kinds = set(zip(np.delete(tokens, query), np.delete(places, query), strict=True))
    assert {*zip(found.symbol, found.place, strict=True)} == kinds
    for c, (symbol, place) in enumerate(zip(found.symbol, found.place, strict=True)):
        own = np.flatnonzero((tokens == symbol) & (places == place))
        own = own[own != query].tolist()
        second = [own[1], own[-2]] if len(own) > 1 else [n, n]
        assert found.ends[:, c].tolist() == [own[0], second[0], own[-1], second[1]]
        assert found.count[c] == len(own)
        assert (found.of[own] == c).all()
