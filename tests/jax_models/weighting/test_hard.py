"""Hard weightings report ambiguous rows, and replace several columns by the summary alone.

Of the reports cells are 1/4 wide and all scores multiples of 1/8, so that nothing is rounded:
a score s stands in cell 4 s, half-way ones at the even neighbour.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, Column, Tile
from tests.jax_models.weighting.laws import moved_keys, part

WIDTH = 0.25
HARD = [name for name, kind in WEIGHTINGS.items() if kind.hard]
INDEX = jnp.arange(4, dtype=jnp.int32)
ROWS = jnp.asarray([3, 7], jnp.int32)  # The positions of the two rows.
SEEN = np.ones((2, 4), bool)


KINDS = "base", "replaced", "moved"
NOTHING = np.zeros((1, 2, 4))


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
            weighting.ties(summary, ROWS),
            weighting.ties_replaced(summary, column, ROWS),
            weighting.ties_changed(weighting.merge_change(first, second), ROWS),
        )

    def report(kind, scores, seen=SEEN, change=NOTHING):
        return run(scores, seen, change)[KINDS.index(kind)]

    return report


@pytest.fixture(scope="module", params=HARD)
def hard(request):
    return WEIGHTINGS[request.param](WIDTH)  # pyright: ignore[reportCallIssue]


@pytest.fixture(scope="module")
def reports(hard):
    return reports_of(hard)


@pytest.fixture(scope="module")
def rounded(hard):
    """The reports where a score may be rounded by 1/8 of its size."""
    return reports_of(hard.for_scores(2**50))


def scores(*rows):
    return jnp.asarray([rows])


CLEAR = (0.0, 2.0, 1.0, 0.5)
BESIDE = (0.0, 1.0, 0.5, 0.75)  # The best stands in cell 4, the next in cell 3.


def test_a_clear_row_is_not_flagged(reports):
    for kind in KINDS:
        report = reports(kind, scores(CLEAR, CLEAR))
        assert not report.ambiguous
        assert float(report.gap) == 1.0
        assert float(report.spread) == 0.0
        np.testing.assert_array_equal(report.scores, [2.0, 1.0])


def test_hidden_keys_and_lower_cells_make_no_ambiguity(reports):
    hidden = SEEN.copy()
    hidden[1, 3] = False
    assert not reports("base", scores(CLEAR, BESIDE), hidden).ambiguous
    # Neighbours below the best do not matter.
    assert not reports("base", scores(CLEAR, (0.0, 2.0, 1.0, 0.75))).ambiguous


def test_a_row_that_sees_nothing_compares_nothing(reports):
    for kind in KINDS:
        report = reports(kind, scores(BESIDE, BESIDE), np.zeros_like(SEEN))
        assert not report.ambiguous
        assert float(report.gap) == np.inf
        assert float(report.spread) == 0.0


def test_the_spread_is_the_width_of_a_tie(reports):
    tied = (0.0, 1.125, 1.0, 0.875)  # All three in cell 4.
    report = reports("base", scores(CLEAR, tied))
    assert float(report.spread) == 0.25
    assert not report.ambiguous
    moved = scores(CLEAR, tied) - scores(CLEAR, CLEAR)
    report = reports("moved", scores(CLEAR, CLEAR), SEEN, moved)
    assert float(report.spread) == 0.25
    assert not report.ambiguous


@pytest.mark.parametrize(
    ("row", "column", "change", "ambiguous", "pair"),
    [
        # A new score arrives beside the best.
        (CLEAR, 0, 1.75, True, (2.0, 1.75)),
        (CLEAR, 0, 2.25, True, (2.25, 2.0)),
        (CLEAR, 0, 1.5, False, None),
        # The lone best leaves, and the next two are neighbours.
        ((0.0, 2.0, 1.0, 0.75), 1, -2.0, True, (1.0, 0.75)),
        ((0.0, 2.0, 1.0, 0.5), 1, -2.0, False, None),
        # It leaves to the neighbourhood of the next.
        ((0.0, 2.0, 1.0, 0.5), 1, -0.75, True, (1.25, 1.0)),
        # The neighbour leaves: the ambiguity goes with it.
        (BESIDE, 3, -0.75, False, None),
        # One of two best leaves: the other one holds the cell.
        ((2.0, 2.0, 1.0, 0.5), 0, -2.0, False, None),
        # All four are needed: best and second leave no trace, the third level counts.
        ((1.0, 2.0, 0.75, 0.5), 1, -5.0, True, (1.0, 0.75)),
    ],
)
def test_a_replaced_or_moved_row_is_flagged(
    reports, row, column, change, ambiguous, pair
):
    moves = np.zeros((1, 2, 4))
    moves[0, 1, column] = change
    for kind in ("replaced", "moved"):
        if kind == "replaced" and row == BESIDE:
            continue  # Where another column is the replaced one, the row stays flagged.
        report = reports(kind, scores(CLEAR, row), SEEN, moves)
        assert bool(report.ambiguous) == ambiguous, kind
        if pair is not None:
            assert report.row == 7
            np.testing.assert_array_equal(report.scores, pair)


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
        report = rounded(kind, scores((8.0, 4.0, 4.0, 4.0), row))
        assert bool(report.ambiguous) == ambiguous, kind
        if ambiguous:
            assert int(report.row) == 7
            assert float(report.scores[0]) == row[0]
        # It is the rounding that makes it so.
        assert not reports(kind, scores(CLEAR, row)).ambiguous, kind


def test_what_makes_scores_meet_may_be_the_replacement(rounded):
    moves = np.zeros((1, 2, 4))
    moves[0, 1, 3] = 6.0
    for kind in ("replaced", "moved"):
        report = rounded(kind, scores(CLEAR, (8.0, 4.0, 4.0, 2.0)), SEEN, moves)
        assert report.ambiguous
        assert float(report.scores[0]) == 8.0


H, MANY, KEYS, SET, V = 2, 200, 12, 4, 3


@jax.jit
def both_ways(weighting: Any, scores, values, seen, moving, step, carried) -> Any:
    """Changes and what is read of them: all keys seen again, and some by the summary."""
    tile = Tile(scores, values, jnp.arange(KEYS, dtype=jnp.int32), seen)

    def moved(k):
        return moved_keys(weighting, part(tile, k), step[..., k], carried[:, k])

    summary = weighting.lift(tile)
    whole = weighting.lift_change(summary, moved(tile.index))
    change, decided = weighting.replace_set(summary, moved(moving))
    read = weighting.read_change
    return (whole, read(whole)), (change, read(change)), decided


def draw(name, levels, seed) -> Any:
    """Of scores 0 .. levels - 1, whatever is seen again and by the summary alone."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (H, MANY, KEYS)).astype(float)
    values = rng.normal(size=(H, KEYS, V))
    seen = rng.random((MANY, KEYS)) < 0.8
    moving = np.sort(rng.permutation(KEYS)[:SET])
    step = np.zeros((H, MANY, KEYS))
    step[..., moving] = rng.integers(-levels, levels + 1, (H, MANY, SET))
    carried = np.zeros((H, KEYS, V))
    carried[:, moving] = rng.normal(size=(H, SET, V))
    arrays = scores, values, seen, moving, step, carried
    return jax.tree.map(np.asarray, both_ways(WEIGHTINGS[name](), *arrays))


@pytest.mark.parametrize("levels", [2, 5, 40])
@pytest.mark.parametrize("name", HARD)
def test_what_the_summary_decides_is_what_seeing_all_keys_gives(name, levels):
    for seed in range(3):
        (whole, expected), (change, found), decided = draw(name, levels, seed)
        assert 0.3 < decided.mean()
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
def test_what_it_does_not_decide_would_often_be_wrong(name):
    """The claim is not idle: without it rows whose best keys all left go wrong."""
    (_, expected), (_, found), decided = draw(name, 40, 0)
    wrong = np.abs(found - expected).max(axis=-1) > 1e-9
    assert not wrong[decided].any()
    assert wrong.any()


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
