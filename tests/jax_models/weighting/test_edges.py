"""A score on the edge of its cell, recomputed with other last bits, changes no winner.

Cells are 1/4 wide. Key A scores a last bit more than 1.125, the edge of the cells 4 and
5, in the base pass; its recomputed score is a last bit less and lands in cell 4. Key B
scores 1.25 and stands in the middle of cell 5, all others are 0. So A is a best key of
every row: alone in row 0, tied with B elsewhere.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, Column, Tile
from tests.jax_models.weighting import laws
from tests.jax_models.weighting.rows import (
    HEADS,
    KEYS,
    ROWS,
    WIDTH,
    Replacement,
    Rows,
    attended,
    draw,
)

CELL = 0.25
A = 3
B = (None, 1, 5, 7)  # in each row
HARD = [name for name, kind in WEIGHTINGS.items() if kind.hard]


def edge_rows(score, beside=None):
    scores = np.zeros((HEADS, ROWS, KEYS))
    for row, key in enumerate(B):
        if key is not None:
            scores[:, row, key] = 1.25 if beside is None else beside
    scores[:, :, A] = score
    return draw(1, scores)


BASE = edge_rows(np.nextafter(1.125, 2.0))
RECOMPUTED = edge_rows(np.nextafter(1.125, 0.0))


@pytest.fixture(params=HARD)
def weighting(request):
    return WEIGHTINGS[request.param](CELL)  # pyright: ignore[reportCallIssue]


def moved_alone(key, by):
    """The score changes [h, r, k] of one key."""
    return np.broadcast_to(by * (np.arange(KEYS) == key), BASE.scores.shape)


def change_of_a(weighting, rows, score, value):
    """The change [r, h, v] when A is replaced, by definition."""
    at_a = (np.arange(KEYS) == A)[:, None]
    after = Rows(rows.scores + score, rows.values + at_a * value, rows.visible)
    before, after = (
        attended(weighting.name, some, resolution=CELL) for some in (rows, after)
    )
    return (after - before).swapaxes(0, 1)


def test_the_cells_are_those_that_are_meant():
    for rows, cell in ((BASE, 5), (RECOMPUTED, 4)):
        assert (np.round(rows.scores[..., A] / CELL) == cell).all()


@pytest.mark.parametrize("by", [0.0, -1.125, 0.5, 0.125])
def test_a_column_on_the_edge_is_the_member_that_it_was(weighting, by):
    score = moved_alone(A, by)
    value = np.random.default_rng(2).normal(size=(HEADS, KEYS, WIDTH))
    found = laws.replace(
        weighting, RECOMPUTED, Replacement(score, value), laws.lift(weighting, BASE)
    )
    expected = change_of_a(weighting, BASE, score, value)
    np.testing.assert_allclose(found[..., A], expected, atol=1e-14)


@jax.jit
def replaced_report(weighting, by):
    """The report of the rows in which A is tied, when A's score changes."""
    one = laws.tile_of(RECOMPUTED, slice(A, A + 1))
    column = Column(
        one.index,
        jnp.asarray(one.scores[:, 1:]),
        jnp.full((HEADS, ROWS - 1, 1), by),
        jnp.asarray(one.values).swapaxes(1, 2),
        jnp.zeros((HEADS, WIDTH, 1)),
        jnp.asarray(one.visible[1:]),
    )
    tile = laws.tile_of(BASE)
    tile = Tile(tile.scores[:, 1:], tile.values, tile.index, tile.visible[1:])
    summary = weighting.lift(jax.tree.map(jnp.asarray, tile))
    return weighting.ties_replaced(summary, column, jnp.arange(1, ROWS))


@pytest.mark.parametrize(
    ("by", "gap", "ambiguous"),
    [(0.0, 1.125, False), (-1.125, 1.25, False), (-0.125, 0.25, True)],
)
def test_its_report_is_that_of_the_member_that_it_was(weighting, by, gap, ambiguous):
    report = replaced_report(weighting, by)
    assert bool(report.ambiguous) == ambiguous
    # The least score of a cell is not known again once a key of it has left.
    assert gap - CELL / 2 - 1e-15 <= float(report.gap) <= gap


def test_a_score_beside_the_best_is_no_member_of_an_ambiguous_row(weighting):
    """There cell 4 is another level, and what leaves it changes nothing."""
    rows = edge_rows(1.0, beside=1.25)
    summary = laws.lift(weighting, rows)
    leaves = Replacement(moved_alone(A, -1.0), np.zeros((HEADS, KEYS, WIDTH)))
    found = laws.replace(weighting, rows, leaves, summary)
    expected = change_of_a(weighting, rows, leaves.score, leaves.value)
    np.testing.assert_allclose(found[..., A], expected, atol=1e-14)
    assert (found[1:, ..., A] == 0).all()


def test_a_member_on_the_edge_leaves_when_all_keys_may_move(weighting):
    operations, score = laws.compiled(weighting), moved_alone(A, -1.125)
    change = operations["lift_change"](
        laws.lift(weighting, BASE),
        laws.tile_of(RECOMPUTED),
        score,
        np.zeros((HEADS, ROWS, KEYS, WIDTH)),
    )
    found = np.asarray(operations["read_change"](change)).swapaxes(0, 1)
    expected = change_of_a(weighting, BASE, score, 0.0)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-14)
