"""One layer: the kernels against the lemma written plainly, and against what can happen.

A layer's input rows are changed by known centres and by unknown errors within radii. The
radii of the output rows hold every such change, are those of the plain lemma, and each
term in them is needed.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.certificate import (
    mean_deviation,
    one_row,
    own_column,
    pointwise,
)
from bounds.lemma5.certificate.sections import layer_constants
from jax_models.model.transformer import apply_layer
from tests.bounds.lemma5.certificate.one_layer import (
    POSITIONS,
    Bounded,
    D,
    N,
    draw_layer,
    draw_moves,
    hand_made,
    output_change,
)
from tests.bounds.lemma5.certificate.plain_lemma import PlainLayer, row_radius

CASES: list[dict[str, Any]] = [
    {"mask": "none", "score": "scaled_dot_product"},
    {"mask": "strict_future", "score": "additive"},
    {"mask": "past", "score": "dot_product", "combine": "concat"},
    {"mask": "future", "score": "scaled_dot_product", "layer_norm": "pre"},
    {"mask": "none", "score": "additive", "layer_norm": "post", "activation": "gelu"},
]


def name(case):
    return " ".join(map(str, case.values()))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_radii_hold_every_change_within_them(case):
    """The change of true rows, of which the computed ones are only near."""
    layer = draw_layer(case)
    run = jax.jit(lambda rows: apply_layer(layer, rows)[0])
    rng = np.random.default_rng(1)
    # How far the rows move, what they are off by in that, and the base is.
    for move, size, off in (
        (0.01, 0.01, 0.0),
        (0.3, 0.3, 0.0),
        (0.1, 0.0, 1e-3),
        (0.1, 0.0, 0.1),
        (0.1, 0.1, 0.03),
    ):
        rows, centre, radius = draw_moves(move)
        radius, known = radius * (size / move), off * rng.uniform(size=N)
        bounded = Bounded(layer, rows, centre, radius, known=known)
        for slot in range(len(POSITIONS)):
            for _ in range(20):
                base, error = rng.normal(size=(2, N, D))
                base *= (known / np.linalg.norm(base, axis=1))[:, None]
                error *= (radius[:, slot] / np.linalg.norm(error, axis=1))[:, None]
                base = rows + base * rng.integers(0, 2, (N, 1))
                moved = base + centre[:, :, slot] + error * rng.integers(0, 2, (N, 1))
                change = np.asarray(run(jnp.asarray(moved)) - run(jnp.asarray(base)))
                assert bounded.holds(change, slot, "one").all()
                assert bounded.holds(change, slot, "many").all()


@pytest.mark.parametrize("case", CASES[:3], ids=name)
def test_the_radii_are_those_of_the_plain_lemma(case):
    layer = draw_layer(case)
    constants = layer_constants(layer)
    gains = constants.sections["out"].gains
    anywhere = np.concatenate([np.ravel(x) for x in gains.values()]).tolist()
    plain = PlainLayer(layer, N)
    # One row's terms are those of the lemma; of many, sums stand for maxima.
    for size, most, most_of_many in ((0.001, 1.02, 2), (0.1, 4, 20)):
        rows, centre, radius = draw_moves(size)
        bounded = Bounded(layer, rows, centre, radius)
        for slot, i in enumerate(POSITIONS):
            for j in range(N):
                moves = plain, rows, centre[:, :, slot], radius[:, slot], j, i
                least = row_radius(*moves, True, anywhere)
                found = bounded.one[1][j, slot]
                assert least * (1 - 1e-9) <= found <= least * most
                if j != i:
                    least = row_radius(*moves, False, anywhere)
                    found = bounded.many[1][j, slot]
                    assert least * (1 - 1e-9) <= found <= least * most_of_many


def without_weight_change(plant):
    """Planted: only the values move, as in the printed proof of Lemma 5."""

    def planted(own, others, *given):
        own = dataclasses.replace(own, exponent=jnp.zeros_like(own.exponent))
        others = dataclasses.replace(
            others,
            slack=jnp.zeros_like(others.slack),
            remainder=jnp.zeros_like(others.remainder),
        )
        return mean_deviation.mean_deviation(own, others, *given)

    for module in (one_row, own_column):
        plant(module, "mean_deviation", planted)


def without_own_query(plant):
    """Planted: a row's own query is taken not to move."""
    true_error, true_query = one_row.own_score_error, own_column.move_own_query

    def no_query(rule, query, key):
        return true_error(rule, (0 * query[0], query[1]), key)

    def no_size(*given):
        found = true_query(*given)
        return dataclasses.replace(
            found, size=0 * found.size, linear_radius=0 * found.linear_radius
        )

    plant(one_row, "own_score_error", no_query)
    plant(own_column, "move_own_query", no_size)


def without_flips(plant):
    """Planted: every neuron is taken to keep its side."""
    planted = lambda operation, z, moved, spread: jnp.zeros_like(z)
    plant(pointwise, "slope_strays", planted)


@pytest.mark.parametrize(
    ("weights", "row", "coordinate", "without"),
    [
        # Key 3 rises against a large query at row 6.
        ({"query": 1.0, "key": 20.0}, 3, 1, without_weight_change),
        # Row 6's own query rises against large keys.
        ({"query": 20.0, "key": 1.0}, 6, 0, without_own_query),
        # Row 6 crosses its own ReLU's kink.
        ({"block": 5.0}, 6, 3, without_flips),
    ],
    ids=["weight change", "own query", "neuron stability"],
)
def test_every_term_is_needed(weights, row, coordinate, without, plant):
    layer, slot = hand_made(**weights), 0
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, D))
    # All keys alike to row 6, or row 6's query zero: equal weights at the base.
    rows[:, 3] = 0.0
    rows[:, 1] *= weights.get("query", 0.0) > 1
    rows[6, 0] = float(weights.get("key", 0.0) > 1)
    rows[:, 2] += 2 * rows[:, 1]
    still = np.zeros((N, D, len(POSITIONS)))
    radius = np.zeros((N, len(POSITIONS)))
    radius[row] = 0.02
    change = np.zeros((N, D))
    change[row, coordinate] = 0.02
    moved = output_change(layer, rows, change)
    bounded = Bounded(layer, rows, still, radius)
    for which in ("one", "many"):
        assert bounded.holds(moved, slot, which)[6]
    without(plant)
    broken = Bounded(layer, rows, still, radius)
    for which in ("one", "many"):
        assert not broken.holds(moved, slot, which)[6]


LARGE_KEY = {"query": 1.0, "key": 20.0}
LARGE_QUERY = {"query": 20.0, "key": 1.0}
VALUES = {(0, 2): 1.0, (1, 2): -1.0, (3, 2): 2.0, (5, 2): -1.0}
ASKING = {(6, 0): 1.0, **VALUES}
BOTH = ("one", "many")


def assert_needed(weights, rows, off, distance, moves, needed, kernels, idle=()):
    """Without the needed radii of the base, a change of a base that is off is outside.

    `moves` are the change [n, d], and the centres and radii that are given for it.
    """
    layer, base, known = hand_made(**weights), np.zeros((N, D)), np.zeros(N)
    for at, value in rows.items():
        base[at] = value
    true, (change, *given) = base.copy(), moves
    true[off] += distance
    known[off[0]] = abs(distance)
    change = output_change(layer, true, change)
    whole = Bounded(layer, base, *given, known=known, without=idle)
    broken = Bounded(layer, base, *given, known=known, without=[*idle, *needed])
    for which in kernels:
        assert whole.holds(change, 0, which)[6]
        assert not broken.holds(change, 0, which)[6]


@pytest.mark.parametrize(
    ("weights", "rows", "off", "move", "needed", "kernels"),
    [
        # The weight of the value that moves: through its own key, through another.
        (LARGE_KEY, ASKING, (0, 1), (0, 2), ["score"], BOTH),
        (LARGE_KEY, ASKING, (3, 1), (0, 2), ["score"], BOTH),
        # The same through the query, whatever its key moves.
        (LARGE_QUERY, {(3, 1): 1.0, **VALUES}, (6, 0), (0, 2), ["score"], ["many"]),
        # A key, while the query moves against it.
        (LARGE_KEY, VALUES, (3, 1), (6, 0), ["key", "slope", "score"], ["one"]),
        # The query, while a key moves: key 0 is held apart, key 3 is not.
        (LARGE_QUERY, VALUES, (6, 0), (0, 1), ["query"], BOTH),
        (LARGE_QUERY, VALUES, (6, 0), (3, 1), ["query"], BOTH),
        # A value, while its weight moves.
        ({"query": 1.0, "key": 1.0}, {(0, 1): 1.0}, (0, 2), (6, 0), ["value"], BOTH),
        ({"query": 1.0, "key": 1.0}, {(3, 1): 1.0}, (3, 2), (6, 0), ["value"], BOTH),
        # A neuron that may be on the other side of its kink.
        ({"block": 5.0}, {}, (6, 3), (6, 3), ["preactivation"], BOTH),
    ],
    ids=str,
)
def test_every_radius_of_the_base_is_needed(weights, rows, off, move, needed, kernels):
    """A true base is off in one coordinate of a row; a row moves along another."""
    kink, centre = off[1] == 3, np.zeros((N, D, len(POSITIONS)))
    centre[*move, 0] = 0.01 if kink else 1.0
    moves = centre[:, :, 0], centre, np.zeros((N, len(POSITIONS)))
    distance = -0.02 if kink else 0.02
    assert_needed(weights, rows, off, distance, moves, needed, kernels)


@pytest.mark.parametrize(
    ("weights", "rows", "off", "move", "needed"),
    [
        # A value, whose weight is larger than was computed: held apart, and not.
        (LARGE_KEY, {(6, 0): 1.0}, (0, 1), (0, 2), ["score"]),
        (LARGE_KEY, {(6, 0): 1.0}, (3, 1), (3, 2), ["score"]),
        # A neuron that is active at the true base alone.
        ({"block": 5.0}, {(6, 3): -0.015}, (6, 3), (6, 3), ["preactivation"]),
    ],
    ids=str,
)
def test_radii_are_carried_by_the_true_base(weights, rows, off, move, needed):
    """A row is off by its radius, at a true base that is off too."""
    error, radius = np.zeros((N, D)), np.zeros((N, len(POSITIONS)))
    error[move] = radius[move[0], 0] = 0.01
    moves = error, np.zeros((N, D, len(POSITIONS))), radius
    distance = 0.02 if "block" in weights else 0.1
    # What the values and keys are off by is idle here; it would cover the rest.
    idle = ["value", "spread", "key", "slope"]
    assert_needed(weights, rows, off, distance, moves, needed, BOTH, idle)
