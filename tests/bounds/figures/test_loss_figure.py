"""The figure of a training run shows its rows: every loss, every level, no more."""

import numpy as np
import pytest

from bounds.figures.tables import loss_figure
from jax_models.languages.source import Levels

LEVELS = Levels(optimal=0.8, last_symbol=1.0, unigram=1.1)
ROWS = [
    {"step": 0, "loss": 3.0, "optimal": 0.7, "loss_4": 1.4, "loss_8": 1.5},
    {"step": 1, "loss": 1.2, "optimal": 0.9},
    {"step": 2, "loss_4": 0.9, "loss_8": 1.05},
]


@pytest.fixture(scope="module")
def lines():
    (axes,) = loss_figure(ROWS, (4, 8), 8, LEVELS).axes
    return {line.get_label(): line for line in axes.lines}


@pytest.mark.parametrize(
    ("label", "steps", "losses"),
    [
        ("batch", [0, 1], [3.0, 1.2]),
        ("n = 4", [0, 2], [1.4, 0.9]),
        ("n = 8", [0, 2], [1.5, 1.05]),
    ],
)
def test_losses_stand_at_their_steps(lines, label, steps, losses):
    np.testing.assert_array_equal(lines[label].get_xdata(), steps)
    np.testing.assert_array_equal(lines[label].get_ydata(), losses)


@pytest.mark.parametrize(
    ("label", "level"),
    [
        ("optimum, n = 8", 0.8),
        ("last symbol, n = 8", 1.0),
        ("unigram, n = 8", 1.1),
        ("optimum, batches", 0.8),
    ],
)
def test_levels_are_level(lines, label, level):
    np.testing.assert_allclose(lines[label].get_ydata(), level, rtol=1e-12)


def test_lines_of_lengths_differ_in_more_than_colour(lines):
    one, other = lines["n = 4"], lines["n = 8"]
    assert one.get_marker() != other.get_marker()
    assert one.get_linestyle() != other.get_linestyle()


def test_losses_that_end_above_the_levels_are_seen():
    high = [
        {k: x if k in ("step", "optimal") else x + 9 for k, x in row.items()}
        for row in ROWS
    ]
    (axes,) = loss_figure(high, (4, 8), 8, LEVELS).axes
    low, top = axes.get_ylim()
    assert low < LEVELS.optimal
    assert top > 10.2
