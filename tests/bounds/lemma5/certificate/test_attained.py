"""Terms of the second order and of convexity that a change attains: none is spare."""

import dataclasses

import numpy as np
import pytest

from tests.bounds.lemma5.certificate.one_layer import (
    POSITIONS,
    Bounded,
    D,
    N,
    hand_made,
    output_change,
)

# Row 2 sees the keys 3 to 6 and not the substituted row 0; weights are equal.
ROW, SLOT, SEEN = 2, 0, [3, 4, 5, 6]


def attained(keys, values, moves):
    """The change of the output's coordinate 2 over the radius around the centre.

    Args:
        keys: x_1 of the rows seen.
        values: x_2 of them.
        moves: {(row, coordinate): change}, all known to within 1e-12.
    """
    layer = hand_made(query=1.0, key=1.0)
    attention = dataclasses.replace(layer.attention, mask="strict_past")
    layer = dataclasses.replace(layer, attention=attention)
    rows, centre = np.zeros((N, D)), np.zeros((N, D, len(POSITIONS)))
    rows[SEEN, 1], rows[SEEN, 2] = keys, values
    for at, move in moves.items():
        centre[*at, SLOT] = move
    change = output_change(layer, rows, centre[:, :, SLOT])
    bounded = Bounded(layer, rows, centre, np.zeros((N, len(POSITIONS))))
    assert bounded.holds(change, SLOT, "many").all()
    found, radius = (x[ROW, ..., SLOT] for x in bounded.many)
    return np.linalg.norm(change[ROW] - found) / radius


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("keys", "values", "moves", "least"),
    [
        # Its own query moves by 0.02: keys on both sides lose to the second order.
        ((1, -1, 0, 0), (1, 1, -1, -1), {(ROW, 0): 0.02}, 0.9),
        # Query and key move together: nothing of the first order is left.
        ((0, 0, 0, 0), (1000, 0, 0, -1000), {(ROW, 0): 0.1, (3, 1): 0.1}, 0.9),
        # Scores beyond the exponential's range: all values move, and convexity holds.
        ((0, 0, 0, 0), (0, 0, 0, 0), {(w, 2): 1000.0 for w in SEEN}, 0.99),
    ],
    ids=["second order", "query times key", "farthest"],
)
def test_a_remainder_is_attained(keys, values, moves, least):
    assert attained(keys, values, moves) > least
