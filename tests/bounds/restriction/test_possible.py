"""Edges are the possible sets of an analysis, whose radii hold compiled temperatures."""

import dataclasses

import numpy as np
import pytest

import jax_models as jm
from bounds.numbers.rounding import SCALAR_STEPS
from bounds.restriction.analysis import PartialInput, analyse, possible_edges
from bounds.restriction.scores import score_rows
from tests.bounds.restriction.drawn_models import random_model

pytestmark = pytest.mark.usefixtures("quick_compilation")

LENGTH = 7


def test_edges_of_a_layer_are_the_sets_of_all_heads_and_rows():
    model = random_model(1, num_layers=2, num_heads=2)
    rho = np.random.default_rng(1).choice([-1, -1, -1, 0, 1], LENGTH)
    partial = PartialInput(rho.astype(np.int32))
    for depth, layer in enumerate(analyse(model, partial, LENGTH - 1).layers):
        edges = dict(possible_edges(model, partial, LENGTH - 1, depth))
        for i, sets in layer.items():
            union = {j for head in sets.heads for poss, _ in head for j in poss}
            assert set(edges[i]) == union


def test_a_temperature_that_is_compiled_otherwise_is_within_the_radius():
    """A power of n, and of a position, may be rounded in several places."""
    schedule = jm.PowerTemperature(0.7, -0.5, "position")
    model = random_model(0, integer=False, temperature=schedule, mask="future")
    partial = PartialInput(np.full(LENGTH, -1, np.int32), (0, 1))
    tables = analyse(model, partial, LENGTH - 1, depth=0).final
    layer = model.layers[0]
    of = {}
    for name, temperature in (("power", schedule), ("none", None)):
        attention = dataclasses.replace(layer.attention, temperature=temperature)
        of[name] = score_rows(
            dataclasses.replace(layer, attention=attention),
            tables,
            LENGTH,
        ).query
    relative = {name: q.radius / np.abs(q.value) for name, q in of.items()}
    more = SCALAR_STEPS * np.finfo(np.float64).eps / 2
    assert (relative["power"] >= relative["none"] + more).all()
