"""Hard weightings: ambiguous rows, keys on the edges of cells, sets by the summary.

Cells are 1/4 wide. Of the reports all scores are multiples of 1/8, so that nothing is
rounded: a score s stands in cell 4 s, half-way ones at the even neighbour.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, Column, Tile
from tests.jax_models.weighting import laws
from tests.jax_models.weighting.laws import (
    HEADS,
    KEYS,
    ROWS,
    WIDTH,
    Replacement,
    Rows,
    attended,
    draw,
    moved_keys,
    part,
)

CELL = 0.25
HARD = [name for name, kind in WEIGHTINGS.items() if kind.hard]
INDEX = jnp.arange(4, dtype=jnp.int32)
PLACES = jnp.asarray([3, 7], jnp.int32)  # The positions of the two rows.
SEEN = np.ones((2, 4), bool)
KINDS = "base", "replaced", "moved"


def reports_of(weighting):
    """The reports of base, replaced and moved rows by their kind, of one program."""
    values = jnp.ones((1, 4, 1))

    @jax.jit
    def run(scores, seen, change):
        tile, value = Tile(scores, values, INDEX, seen), values.mT
        summary = weighting.lift(tile)
        column = Column(INDEX, scores, change, value, value, seen)
        first, second = (
            weighting.lift_change(
                summary,
                moved_keys(weighting, part(tile, k), change[..., k], values[:, k]),
            )
            for k in (slice(0, 2), slice(2, 4))
        )
        return (
            weighting.ties(summary, PLACES),
            weighting.ties_replaced(summary, column, PLACES),
            weighting.ties_changed(weighting.merge_change(first, second), PLACES),
        )

    return lambda kind, *given: run(*given)[KINDS.index(kind)]


@pytest.fixture(scope="module", params=HARD)
def weighting(request):
    return WEIGHTINGS[request.param](CELL)  # pyright: ignore[reportCallIssue]


@pytest.fixture(scope="module")
def reports(weighting):
    return reports_of(weighting)


@pytest.fixture(scope="module")
def rounded(weighting):
    """The reports where a score may be rounded by 1/8 of its size."""
    return reports_of(weighting.for_scores(2**50))


CLEAR = (0.0, 2.0, 1.0, 0.5)
BESIDE = (0.0, 1.0, 0.5, 0.75)  # The best stands in cell 4, the next in cell 3.


def meeting(best, second):
    return {"ambiguous": True, "row": 7, "scores": [best, second]}


def report_of(reports, kind, row, change=(0, 0, 0, 0), seen=SEEN, first=CLEAR):
    """The report of two rows, the second of which changes."""
    changes = np.asarray([[(0, 0, 0, 0), change]], float)
    return reports(kind, jnp.asarray([[first, row]]), seen, changes)


CLEAR_REPORT = {"ambiguous": False, "gap": 1.0, "spread": 0.0, "scores": [2.0, 1.0]}
TIED = (0.0, 1.125, 1.0, 0.875)  # All three in cell 4.
TIE = {"ambiguous": False, "spread": 0.25}
CHANGED = KINDS[1:]
# Of which kinds a row, its change, and what is reported.
REPORTED = [
    (KINDS, CLEAR, (0, 0, 0, 0), CLEAR_REPORT),
    # Neighbours below the best do not matter.
    (["base"], (0.0, 2.0, 1.0, 0.75), (0, 0, 0, 0), {"ambiguous": False}),
    (["base"], TIED, (0, 0, 0, 0), TIE),
    (["moved"], CLEAR, (0, -0.875, 0, 0.375), TIE),
    # A new score arrives beside the best.
    (CHANGED, CLEAR, (1.75, 0, 0, 0), meeting(2.0, 1.75)),
    (CHANGED, CLEAR, (2.25, 0, 0, 0), meeting(2.25, 2.0)),
    (CHANGED, CLEAR, (1.5, 0, 0, 0), {"ambiguous": False}),
    # The lone best leaves, and the next two are neighbours.
    (CHANGED, (0.0, 2.0, 1.0, 0.75), (0, -2.0, 0, 0), meeting(1.0, 0.75)),
    (CHANGED, (0.0, 2.0, 1.0, 0.5), (0, -2.0, 0, 0), {"ambiguous": False}),
    # It leaves to the neighbourhood of the next.
    (CHANGED, (0.0, 2.0, 1.0, 0.5), (0, -0.75, 0, 0), meeting(1.25, 1.0)),
    # The neighbour leaves, and the ambiguity with it; another replaced column leaves it.
    (["moved"], BESIDE, (0, 0, 0, -0.75), {"ambiguous": False}),
    # One of two best leaves: the other one holds the cell.
    (CHANGED, (2.0, 2.0, 1.0, 0.5), (-2.0, 0, 0, 0), {"ambiguous": False}),
    # All four are needed: best and second leave no trace, the third level counts.
    (CHANGED, (1.0, 2.0, 0.75, 0.5), (0, -5.0, 0, 0), meeting(1.0, 0.75)),
]


@pytest.mark.parametrize(("kinds", "row", "change", "said"), REPORTED)
def test_a_row_is_flagged_where_its_best_cells_are_neighbours(
    reports, kinds, row, change, said
):
    for kind in kinds:
        report = report_of(reports, kind, row, change)
        for name, value in said.items():
            np.testing.assert_array_equal(getattr(report, name), value, kind)


def test_keys_that_are_not_seen_make_no_ambiguity(reports):
    hidden = SEEN.copy()
    hidden[1, 3] = False
    assert not report_of(reports, "base", BESIDE, seen=hidden).ambiguous
    for kind in KINDS:
        nothing = np.zeros_like(SEEN)
        report = report_of(reports, kind, BESIDE, seen=nothing, first=BESIDE)
        assert not report.ambiguous
        assert (float(report.gap), float(report.spread)) == (np.inf, 0.0)


@pytest.mark.parametrize(
    ("row", "ambiguous"),
    [
        ((2.0, 2.0, 0.5, 0.5), True),  # A tie, and a rounding of a cell's width.
        ((1.5, 1.5, 0.5, 0.5), False),  # The same, with a rounding of less than that.
        ((-2.0, -2.0, -9.0, -9.0), True),
        ((2.0, 1.5, 0.5, 0.5), True),  # The next may be rounded onto the best.
        ((2.0, 1.25, 0.5, 0.5), False),  # It may not: the best is clear.
        ((8.0, 4.0, 4.0, 4.0), False),
        ((-8.0, -16.0, -16.0, -16.0), False),
    ],
)
def test_scores_rounded_by_a_cell_are_ambiguous_where_they_meet(
    rounded, reports, row, ambiguous
):
    for kind in KINDS:
        report = report_of(rounded, kind, row, first=(8.0, 4.0, 4.0, 4.0))
        assert bool(report.ambiguous) == ambiguous, kind
        if ambiguous:
            assert int(report.row) == 7
            assert float(report.scores[0]) == row[0]
        # It is the rounding that makes it so.
        assert not report_of(reports, kind, row).ambiguous, kind


def test_what_makes_scores_meet_may_be_the_replacement(rounded):
    for kind in CHANGED:
        report = report_of(rounded, kind, (8.0, 4.0, 4.0, 2.0), (0, 0, 0, 6.0))
        assert report.ambiguous
        assert float(report.scores[0]) == 8.0


H, MANY, FEW, SET, V = 2, 200, 12, 4, 3


@jax.jit
def both_ways(weighting: Any, scores, values, seen, moving, step, carried) -> Any:
    """Changes and what is read of them: all keys seen again, and some by the summary."""
    tile = Tile(scores, values, jnp.arange(FEW, dtype=jnp.int32), seen)

    def moved(k):
        return moved_keys(weighting, part(tile, k), step[..., k], carried[:, k])

    summary = weighting.lift(tile)
    whole = weighting.lift_change(summary, moved(tile.index))
    change, decided = weighting.replace_set(summary, moved(moving))
    read = weighting.read_change
    return (whole, read(whole)), (change, read(change)), decided


def draw_set(name, levels, seed) -> Any:
    """Of scores 0 .. levels - 1, whatever is seen again and by the summary alone."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (H, MANY, FEW)).astype(float)
    values = rng.normal(size=(H, FEW, V))
    seen = rng.random((MANY, FEW)) < 0.8
    moving = np.sort(rng.permutation(FEW)[:SET])
    step = np.zeros((H, MANY, FEW))
    step[..., moving] = rng.integers(-levels, levels + 1, (H, MANY, SET))
    carried = np.zeros((H, FEW, V))
    carried[:, moving] = rng.normal(size=(H, SET, V))
    arrays = scores, values, seen, moving, step, carried
    return jax.tree.map(np.asarray, both_ways(WEIGHTINGS[name](), *arrays))


@pytest.mark.parametrize("levels", [2, 5, 40])
@pytest.mark.parametrize("name", HARD)
def test_what_the_summary_decides_is_what_seeing_all_keys_gives(name, levels):
    for seed in range(3):
        (whole, expected), (change, found), decided = draw_set(name, levels, seed)
        assert 0.3 < decided.mean()
        # Of some that are not decided the best keys all left.
        wrong = np.abs(found - expected).max(axis=-1) > 1e-9
        assert wrong[~decided].any() or levels < 40
        np.testing.assert_allclose(found[decided], expected[decided], 1e-12, 1e-13)
        # The two best cells too, and how many keys are in the best: the tie report.
        for level in ("first", "second"):
            one, two = (getattr(x.levels, level) for x in (change, whole))
            fields = ["cell", "low", "high"] + ["count"] * (level == "first")
            for field in fields:
                np.testing.assert_array_equal(
                    *(getattr(x, field)[decided] for x in (one, two))
                )


@pytest.mark.parametrize("name", HARD)
def test_a_score_computed_anew_beside_a_cell_is_left_to_a_second_look(name):
    """A last bit on the edge of the second best cell: which cell it left is not known."""
    weighting: Any = WEIGHTINGS[name](tie_resolution=1.0)
    scores, values = jnp.asarray([[[9.0, 5.49999, 1.0]]]), jnp.ones((1, 3, 1))
    tile = Tile(scores, values, jnp.arange(3), jnp.ones((1, 3), bool))

    @jax.jit
    def decided(score):
        one = part(tile, slice(1, 2))
        one = dataclasses.replace(one, scores=score[None, None, None])
        moved = moved_keys(weighting, one, jnp.asarray([[[-9.0]]]), one.values)
        return weighting.replace_set(weighting.lift(tile), moved)[1].all()

    assert not decided(5.50001)
    assert decided(5.4)


# A score on the edge of its cell, recomputed with other last bits, changes no winner. Key A
# scores a last bit more than 1.125, the edge of the cells 4 and 5, in the base pass; its
# recomputed score is a last bit less and lands in cell 4. Key B scores 1.25 and stands in
# the middle of cell 5, all others are 0. So A is a best key of every row: alone in row 0,
# tied with B elsewhere.
A = 3
B = (None, 1, 5, 7)  # in each row


def edge_rows(score, beside=None):
    scores = np.zeros((HEADS, ROWS, KEYS))
    for row, key in enumerate(B):
        if key is not None:
            scores[:, row, key] = 1.25 if beside is None else beside
    scores[:, :, A] = score
    return draw(1, scores)


BASE = edge_rows(np.nextafter(1.125, 2.0))
RECOMPUTED = edge_rows(np.nextafter(1.125, 0.0))


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
