"""Terms of a certificate that larger ones hide, each where nothing else is left."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.pointwise import base_rows
from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    Roundoff,
    mean_deviation,
)
from bounds.lemma5.certificate.one_row import heads_rounding, move_one_row
from bounds.lemma5.certificate.own_column import other_columns, other_sums, see_column
from bounds.lemma5.certificate.pointwise import (
    BaseRows,
    MovedRows,
    OwnMove,
    Rounding,
    carry_radius,
    row_norms,
)
from bounds.lemma5.certificate.row_base import prepare_spread, take_rows
from bounds.lemma5.certificate.scores import (
    AdditiveRule,
    DotProductRule,
    Inflation,
)
from bounds.lemma5.certificate.sections import entering, layer_constants, sections
from jax_models.model.scores import AdditiveScore
from tests.bounds.lemma5.certificate.one_layer import (
    EVERY,
    POSITIONS,
    Bounded,
    D,
    N,
    bare,
    hand_made,
    one_tile,
    output,
    output_change,
    post,
    prepared,
    with_norms,
)

NOTHING = jnp.zeros(1)
STILL = jnp.zeros((1, N))
EXACT = Inflation(*[STILL] * 5)
ROW = np.array([3.0, -1.0, 0.0, -2.0])


def carried(layer, row, radius, read=0.0):
    """Radius of the output around a row whose change is only known to be in `radius`."""
    heads = layer.attention.num_heads
    joined = jnp.zeros((1, heads * layer.attention.value.shape[1]))
    base, _ = base_rows(layer, jnp.asarray(row)[None], joined)
    held: Any = SimpleNamespace(layer=layer, constants=layer_constants(layer))
    still = jax.tree.map(jnp.zeros_like, base.rows)
    known = {name: jnp.zeros(1) for name in base.rows}
    known["preactivation"] = jnp.zeros_like(base.rows["preactivation"])
    off = {
        name: dict.fromkeys(x.reads, jnp.asarray([read]))
        for name, x in held.constants.sections.items()
    }
    corners = [x.name for x in sections(layer)]
    none = jnp.zeros((1, heads))
    found = carry_radius(
        held,
        BaseRows(base.rows, row_norms(held, base), known),
        still,
        Rounding(dict.fromkeys(corners, NOTHING), off),
        entering(layer, jnp.asarray([radius]), none.T),
    )
    return float(found[0])


def test_the_cap_of_a_last_norm_is_twice_its_scale():
    layer, scale = post(50.0), 50.0
    apart = np.linalg.norm(output(layer, -ROW) - output(layer, ROW))
    assert apart == pytest.approx(2 * scale * math.sqrt(D), rel=1e-6)
    assert apart <= carried(layer, ROW, 1e9) * (1 + 1e-12)
    assert carried(layer, ROW, 1e9) <= 1.01 * apart


def test_the_whole_jacobian_is_taken_along_the_whole_radius():
    layer, across = post(1.0), np.array([1.0, 1.0, -4.0, 2.0])
    row, step = 1e3 * ROW, 10 * across / np.linalg.norm(across)
    moved = np.linalg.norm(output(layer, row + step) - output(layer, row))
    assert moved <= carried(layer, row, 10.0) <= 1.1 * moved


def test_a_neuron_that_rounding_may_have_switched_on_carries_the_radius():
    """It reads -1, up to a rounding of 2: then a step of 0.1 is written five times."""
    layer = bare({"layer_norm": "none"}, w1={(0, 0): 1.0}, w2={(1, 0): 5.0})
    on = np.array([1.0, 0.0, 0.0, 0.0])
    moved = np.linalg.norm(output(layer, 1.1 * on) - output(layer, on))
    assert moved > 0.5
    assert moved <= carried(layer, -on, 0.1, read=2.0)
    # Where it cannot be on, the row itself is all that moves.
    assert carried(layer, -on, 0.1) == pytest.approx(0.1, rel=0.01)


def test_slopes_in_a_query_grow_with_the_keys_that_move():
    key, move = jnp.full((1, 1, 1), 2.0), jnp.full((1, 1, 1), 10.0)
    moved = MovedRows(jnp.zeros(1, jnp.int32), move, move[0])
    constants: Any = SimpleNamespace(key=jnp.asarray([2.0]))
    attention: Any = SimpleNamespace(key_by_head=key)
    one = jnp.ones((1, 1, 1))
    rule = DotProductRule(attention, constants, NOTHING)
    found = rule.moved_slopes(one, one, moved, one, move)
    assert float(found[2].max()) == 1.0 + 2.0 * 10.0


def test_the_largest_additive_score_is_over_the_scale():
    score, scale = AdditiveScore(jnp.full((1, 1), 3.0)), jnp.asarray([0.1])
    found = AdditiveRule.read_constants(score, 1)
    numbers = SimpleNamespace(**{x: jnp.asarray(y) for x, y in found.items()})
    one = jnp.full((1, 1, 1), 20.0)
    attention: Any = SimpleNamespace(scoring=score)
    size = AdditiveRule(attention, numbers, scale).score_size(one, one)
    largest = 3.0 * math.tanh(40.0) / 0.1
    assert largest * (1 - 1e-12) <= float(size.max()) <= 1.01 * largest


def test_a_linear_part_is_kept_up_to_what_the_weights_sum_to():
    """Two columns of weight 1/2, a score off by x: their mean moves by l / Z, not l."""
    for x in (1e-9, 0.1, 2.0):
        slack = 0.5 * math.expm1(x)
        off = slack**2 / (1 + slack)
        none = jnp.asarray(0.0)
        found = mean_deviation(
            ColumnMove(none, jnp.asarray(1.0), none, none, none),
            OtherMoves(
                jnp.asarray(slack), slack, none, none, none, jnp.asarray(jnp.inf)
            ),
            log_weight=0.0,
        )
        assert off * (1 - 1e-12) <= float(found) <= (1 + slack) * off * (1 + 1e-6)


def one_head(query, query_bias, key, value) -> Any:
    """Dot products of one head, which reads keys x_1 and values x_0."""
    return bare(
        {"mask": "none", "score": "dot_product", "num_heads": 1},
        query={(0, 0, 0): query},
        query_bias={(0, 0): query_bias},
        key={(0, 0): jnp.asarray(key)},
        value={(0, 0, 0): value},
        output={(0, 0): 1.0},
    )


@jax.jit
def sums_of_others(held, radius, query_size):
    """Slack and remainder [j] of the lemma, column 0 apart, radii [n] of the rest."""
    held = dataclasses.replace(held, spread=prepare_spread(held))
    position = jnp.zeros(1, jnp.int32)
    own = OwnMove(position, jnp.zeros((1, D)), NOTHING)
    inner = MovedRows(position, jnp.zeros((N, D, 1)), radius[:, None])
    seen = one_tile(held, EXACT)
    column, others = see_column(held, seen, own), other_columns(held, inner)
    query: Any = SimpleNamespace(size=jnp.full((1, N, 1), query_size))
    found = other_sums(held, seen, others, column, query)
    return [x[0, :, 0] for x in found[:2]]


def test_a_value_at_the_mean_is_off_the_mean_of_the_others():
    """Equal weights, the mean 0 by column i alone: a key at value 0 moves the others."""
    layer = one_head(0.0, 2.0, [0.0, 1.0, 0.0, 0.0], 1.0)
    rows, radius, size = np.zeros((N, D)), np.zeros(N), 1e-3
    rows[:2, 0], radius[2] = (1.0, -1.0), size
    exact = math.expm1(2.0 * size) / (N - 1) ** 2
    _, remainder = sums_of_others(prepared(layer, rows), radius, 0.0)
    assert (exact <= remainder[1:]).all()
    assert (remainder[1:] <= 1.1 * exact).all()


def test_what_true_scores_move_a_change_by_is_attained():
    """One key of a small weight, its value 1, the others' -1: it grows by e^x."""
    steep, move, off = 1e6, 8.0, 0.01
    layer = one_head(0.0, 1.0, [0.0, steep, 0.0, 0.0], 1.0)
    rows, centre = np.zeros((N, D)), np.zeros((N, D, 1))
    rows[:, 0], rows[0], centre[0, 1] = -1.0, (1.0, -20 / steep, 0, 0), move / steep

    def change(score):
        """Of the mean, with its score and ln(N - 1) for the others'."""
        weights = [1 / (1 + (N - 1) * math.exp(-s)) for s in (score, score + move)]
        return 2 * (weights[1] - weights[0])

    exact = change(-20.0 + off) - change(-20.0)
    held = prepared(layer, rows, wanted=EVERY[:1])
    inner = MovedRows(EVERY[:1], jnp.asarray(centre), jnp.zeros((N, 1)))
    score = jnp.full((1, 1, N), 0.0).at[..., 0].set(-20.0)
    moved = jnp.zeros((1, 1, N)).at[..., 0].set(move)
    row: Any = SimpleNamespace(
        seen=jnp.ones((1, 1, N), bool),
        before=score,
        score_change=moved,
        score=score + moved,
        inflation=dataclasses.replace(EXACT, weight=jnp.full((1, 1), off)),
    )
    still = jnp.zeros((1, 1, layer.attention.value.shape[1]))
    found = heads_rounding(held, inner, row, still)
    assert exact * (1 - 1e-9) <= float(found[0, 0]) <= 1.01 * exact


def test_keys_that_move_meet_queries_that_moved():
    """Queries are 0 and move by s: their scores move by s times the key's change."""
    layer = one_head(1.0, 0.0, [0.0, 1.0, 0.0, 0.0], 1.0)
    radius, size = np.zeros(N), 1e-2
    radius[2] = size
    exact = math.expm1(size * size) / (N - 1)
    held = prepared(layer, np.zeros((N, D)))
    slack, _ = sums_of_others(held, radius, size)
    assert (exact * (1 - 1e-9) <= slack[1:]).all()
    assert (slack[1:] <= 1.1 * exact).all()


def test_a_key_change_that_cancels_is_met_by_the_query_with_its_rounding():
    """W_K x = 0 as 1 - 1: rounded by a tenth of its terms, times a query off by 3."""
    layer = one_head(0.0, 1.0, [1.0, -1.0, 0.0, 0.0], 1.0)
    held = prepared(layer, np.zeros((N, D)))
    off = dataclasses.replace(EXACT, query=STILL + 3.0)
    centre = jnp.asarray([[1.0, 1.0, 0.0, 0.0]])
    own = OwnMove(jnp.asarray([0], jnp.int32), centre, NOTHING)
    roundoff = Roundoff(jnp.asarray(0.0), jnp.asarray(0.1))
    held = dataclasses.replace(held, roundoff=roundoff)
    found = see_column(held, one_tile(held, off), own)
    exact = 3.0 * 0.1 * (1.0 + 1.0)
    assert np.asarray(found.score_error) == pytest.approx(exact, rel=1e-9)


# Row 2 sees the keys 3 to 6 and not the substituted row 0; weights are equal.
SEEING, FIRST, SEEN_KEYS = 2, 0, [3, 4, 5, 6]


def attained(keys, values, moves):
    """The change of the output's coordinate 2 over the radius around the centre.

    Args:
        keys: x_1 of the rows seen.
        values: x_2 of them.
        moves: {(row, coordinate): change}, all known to within 1e-12.
    """
    layer = hand_made(query=1.0, key=1.0, mask="strict_past")
    rows, centre = np.zeros((N, D)), np.zeros((N, D, len(POSITIONS)))
    rows[SEEN_KEYS, 1], rows[SEEN_KEYS, 2] = keys, values
    for at, move in moves.items():
        centre[*at, FIRST] = move
    change = output_change(layer, rows, centre[:, :, FIRST])
    bounded = Bounded(layer, rows, centre, np.zeros((N, len(POSITIONS))))
    assert bounded.holds(change, FIRST, "many").all()
    found, radius = (x[SEEING, ..., FIRST] for x in bounded.many)
    return np.linalg.norm(change[SEEING] - found) / radius


@pytest.mark.parametrize(
    ("keys", "values", "moves", "least"),
    [
        # Its own query moves by 0.02: keys on both sides lose to the second order.
        ((1, -1, 0, 0), (1, 1, -1, -1), {(SEEING, 0): 0.02}, 0.9),
        # Query and key move together: nothing of the first order is left.
        ((0, 0, 0, 0), (1000, 0, 0, -1000), {(SEEING, 0): 0.1, (3, 1): 0.1}, 0.9),
        # Scores beyond the exponential's range: all values move, and convexity holds.
        ((0, 0, 0, 0), (0, 0, 0, 0), {(w, 2): 1000.0 for w in SEEN_KEYS}, 0.99),
    ],
    ids=["second order", "query times key", "farthest"],
)
def test_a_remainder_is_attained(keys, values, moves, least):
    assert attained(keys, values, moves) > least


MOVED, SMALL = 6, 1e-5
ALONG, ACROSS = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
ASKEW = np.array([1.0, 1.0, -1.0, -1.0])
EPSILON = 1e-4


def alone(layer_norm, written):
    """A layer of norms, and of one neuron that reads `ACROSS` and writes [d]."""
    case = {"layer_norm": layer_norm, "layer_norm_epsilon": EPSILON}
    neuron = {(at, 0): x for at, x in enumerate(written)}
    return with_norms(bare(case, w1={0: ACROSS}, b1={0: -0.1}, w2=neuron))


def normalised(row):
    return row / np.sqrt((row**2).mean() + EPSILON)


AFTER = normalised(ALONG + 0.5 * ACROSS)


@pytest.mark.parametrize(
    ("layer_norm", "written", "base", "moved"),
    [
        # The neuron takes off nearly all of the row, once it is active.
        (
            "post",
            -0.99 * AFTER / (AFTER @ ACROSS - 0.1),
            10 * ALONG,
            10 * ALONG + 5 * ACROSS,
        ),
        ("pre", AFTER, 10 * ALONG, 0.01 * ALONG),
        ("post", 0 * AFTER, 10 * ALONG, 0.01 * ALONG),
    ],
    ids=["last of post", "pre", "first of post"],
)
def test_radii_hold_where_a_row_is_smaller_than_it_was(
    layer_norm, written, base, moved
):
    layer, rng = alone(layer_norm, written), np.random.default_rng(0)
    rows, centre = rng.normal(size=(N, D)), np.zeros((N, D, len(POSITIONS)))
    radius = np.zeros((N, len(POSITIONS)))
    rows[MOVED], centre[MOVED, :, FIRST] = base, moved - base
    radius[MOVED, FIRST] = SMALL
    row = take_rows(prepared(layer, rows), jnp.full(len(POSITIONS), MOVED, jnp.int32))
    moves = MovedRows(
        jnp.asarray(POSITIONS, jnp.int32), jnp.asarray(centre), jnp.asarray(radius)
    )
    found, allowed = move_one_row(row, moves)
    nearest = 0.0
    for error in (*rng.normal(size=(20, D)), ASKEW):
        step = np.zeros((N, D))
        step[MOVED] = SMALL * error / np.linalg.norm(error)
        change = output_change(layer, rows, centre[:, :, FIRST] + step)[MOVED]
        off = np.linalg.norm(change - found[FIRST]) / allowed[FIRST]
        nearest = max(nearest, float(off))
    assert 0.1 < nearest <= 1
