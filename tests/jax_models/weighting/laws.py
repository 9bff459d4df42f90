"""Laws of a weighting, functions that fail where it breaks them; rows, and their oracle.

All rows have one shape, so that every law compiles once per weighting: h = 2 heads,
r = 4 query rows, k = 8 keys, values of width 3. The oracle is the weighting of the
reference transformer, in float64 or with many digits.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import reference
from jax_models.weighting import Column, MovedKeys, Tile, spread_of

HEADS, ROWS, KEYS, WIDTH = 2, 4, 8, 3
# The model format's default width of a score cell in float64.
RESOLUTION = 1e-9
GAPS = (5.0, 20.0, 36.0, 100.0, 800.0)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Scores [h, r, k], values [h, k, v] and what each row sees [r, k]."""

    scores: np.ndarray
    values: np.ndarray
    visible: np.ndarray


def everything_seen():
    return np.ones((ROWS, KEYS), bool)


def draw(seed=0, scores=None, visible=None):
    rng = np.random.default_rng(seed)
    gaussian = rng.normal(size=(HEADS, ROWS, KEYS))
    values = rng.normal(size=(HEADS, KEYS, WIDTH))
    scores = gaussian if scores is None else np.broadcast_to(scores, gaussian.shape)
    return Rows(scores, values, everything_seen() if visible is None else visible)


def dominated(gap, seed=0):
    """Rows whose key r + 2 is ahead of all others by at least `gap`."""
    rows = draw(seed)
    scores = np.tanh(rows.scores)
    at = np.arange(ROWS)
    scores[:, at, at + 2] = gap + 1
    return dataclasses.replace(rows, scores=scores)


def integer_scores(seed):
    """Few distinct scores, so that every row has ties in its best and second cell."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (HEADS, ROWS, KEYS)).astype(np.float64)


def masked():
    """One row that sees all, one nothing, one a single key, one every second key."""
    visible = np.zeros((ROWS, KEYS), bool)
    visible[0] = True
    visible[2, 5] = True
    visible[3, ::2] = True
    return visible


CASES = {
    "random": draw(1),
    "masked": draw(2, visible=masked()),
    "ties": draw(3, integer_scores(3)),
    "masked ties": draw(4, integer_scores(4), masked()),
    "equal keys": draw(5, 0.0),
    **{f"dominant by {gap:g}": dominated(gap) for gap in GAPS},
}


def attended(name, rows, arithmetic=reference.FLOAT64, resolution=RESOLUTION):
    """The attended values [h, r, v] by definition; zero for a row that sees nothing."""
    ar = arithmetic
    scores, values = ar.numbers(rows.scores), ar.numbers(rows.values)
    result = ar.numbers(np.zeros((*scores.shape[:2], values.shape[-1])))
    for head in range(scores.shape[0]):
        for row, seen in enumerate(rows.visible):
            if seen.any():
                weights = reference.row_weights(
                    scores[head, row, seen], name, ar.numbers(resolution), "ignore", ar
                )
                result[head, row] = weights @ values[head, seen]
    return result


@dataclasses.dataclass(frozen=True)
class Replacement:
    """What every column becomes: score changes [h, r, k], value changes [h, k, v]."""

    score: np.ndarray
    value: np.ndarray


def replacements(rows, seed=0):
    """Replacements of every kind: drawn, to an equal score, and across a large gap."""
    rng = np.random.default_rng(seed)
    shape, value = rows.scores.shape, rng.normal(size=rows.values.shape)
    top = np.where(rows.visible, rows.scores, -np.inf).max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    kinds = {
        "drawn": rng.normal(size=shape),
        "integer": rng.integers(-2, 3, shape).astype(np.float64),
        "to the top": top - rows.scores,
        "score kept": np.zeros(shape),
        **{f"arrives by {gap:g}": top + gap - rows.scores for gap in GAPS},
        **{f"leaves by {gap:g}": top - gap - rows.scores for gap in GAPS},
    }
    return {kind: Replacement(score, value) for kind, score in kinds.items()}


def replaced_change(name, rows, replacement, arithmetic=reference.FLOAT64):
    """The change [r, h, v, k] when column k alone is replaced, by definition."""
    ar = arithmetic
    scores, values = ar.numbers(rows.scores), ar.numbers(rows.values)
    before = attended(name, rows, ar)
    changes = []
    for k in range(scores.shape[-1]):
        one = np.arange(scores.shape[-1]) == k
        after = Rows(
            scores + np.where(one, ar.numbers(replacement.score), ar.numbers(0)),
            values
            + np.where(one[:, None], ar.numbers(replacement.value), ar.numbers(0)),
            rows.visible,
        )
        changes.append(attended(name, after, ar) - before)
    return np.stack(changes, axis=-1).swapaxes(0, 1)


def moved_change(name, rows, moved, arithmetic=reference.FLOAT64):
    """The change [h, r, v] when every column moves, as row r sees it, by definition."""
    ar = arithmetic
    before = attended(name, rows, ar)
    scores = ar.numbers(rows.scores) + ar.numbers(moved.score)
    after = []
    for row in range(scores.shape[1]):
        alone = Rows(
            scores[:, row : row + 1],
            ar.numbers(rows.values) + ar.numbers(moved.value[:, row]),
            rows.visible[row : row + 1],
        )
        after.append(attended(name, alone, ar)[:, 0])
    return np.stack(after, axis=1) - before


INDEX = jnp.arange(KEYS, dtype=jnp.int32)
TILES = [np.arange(KEYS).reshape(4, 2)[t] for t in range(4)]
MANY_DIGITS = reference.multiprecision(160)


def moved_keys(weighting, tile, score_change, value_change):
    """The keys of a tile, moved; values change alike for all rows, or for each its own."""
    axes = "hik,hikv->hiv" if value_change.ndim == 4 else "hik,hkv->hiv"
    return MovedKeys(
        tile.index,
        tile.scores,
        score_change,
        tile.visible,
        spread_of(weighting, tile.values),
        lambda w: jnp.einsum(axes, w, value_change),
        tile.count,
    )


@functools.cache
def compiled(weighting):
    """The operations of a weighting, each compiled once for all laws."""
    methods = "lift merge read replace weights attend merge_change read_change".split()
    operations = {name: jax.jit(getattr(weighting, name)) for name in methods}
    operations["lift_change"] = jax.jit(
        lambda summary, *given: weighting.lift_change(
            summary, moved_keys(weighting, *given)
        )
    )
    return operations


def part(tile, keys):
    """Some keys of a tile."""
    scores, values = tile.scores[..., keys], tile.values[:, keys]
    return Tile(scores, values, tile.index[keys], tile.visible[:, keys])


def tile_of(rows, keys=slice(None)):
    return part(Tile(rows.scores, rows.values, INDEX, rows.visible), keys)


def lift(weighting, rows, keys=slice(None)):
    return compiled(weighting)["lift"](tile_of(rows, keys))


def replace(weighting, rows, replacement, summary=None):
    """The changes [r, h, v, k] of replacing each column alone."""
    summary = lift(weighting, rows) if summary is None else summary
    column = Column(
        index=INDEX,
        score=jnp.asarray(rows.scores),
        score_change=jnp.asarray(replacement.score),
        value=jnp.asarray(rows.values).swapaxes(1, 2),
        value_change=jnp.asarray(replacement.value).swapaxes(1, 2),
        visible=jnp.asarray(rows.visible),
    )
    return np.asarray(compiled(weighting)["replace"](summary, column))


def perturb(weighting, rows, moved, tiles=None, summary=None):
    """The changes [h, r, v] of moving all columns, tile by tile in the given order."""
    summary = lift(weighting, rows) if summary is None else summary
    operations = compiled(weighting)
    parts = [
        operations["lift_change"](
            summary,
            tile_of(rows, keys),
            moved.score[..., keys],
            moved.value[:, :, keys],
        )
        for keys in ([slice(None)] if tiles is None else tiles)
    ]
    whole = functools.reduce(operations["merge_change"], parts)
    return np.asarray(operations["read_change"](whole))


def associations(parts, merge):
    """Yields the merge of parts in their order under every bracketing."""
    if len(parts) == 1:
        yield parts[0]
    for split in range(1, len(parts)):
        for left in associations(parts[:split], merge):
            for right in associations(parts[split:], merge):
                yield merge(left, right)


def assert_close(found, expected, *, relative=0.0, absolute=1e-13, label=""):
    """Norms over the value axis (2 of [r, h, v, k], else the last) must agree."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.isfinite(found).all(), label
    axis = 2 if found.ndim == 4 else -1
    error, size = (
        np.sqrt((x * x).sum(axis=axis).astype(np.float64))
        for x in (found - expected, expected)
    )
    worst = np.max(error - relative * size)
    assert worst <= absolute, f"{label}: {worst:.3g} beyond {relative:g} relative"


def assert_keeps_digits(found, expected, label):
    assert_close(found, expected, relative=1e-12, absolute=1e-300, label=label)


def read_is_the_weighted_mean(weighting):
    for label, rows in CASES.items():
        expected = attended(weighting.name, rows)
        read = compiled(weighting)["read"](lift(weighting, rows))
        assert_close(read, expected, label=label)
        weights = np.asarray(compiled(weighting)["weights"](rows.scores, rows.visible))
        assert_close(weights @ rows.values, expected, label=label)
        assert (weights[:, ~rows.visible] == 0).all(), label
        at_once = compiled(weighting)["attend"](tile_of(rows))
        assert_close(at_once, expected, label=label)
        empty = ~rows.visible.any(axis=1)
        for found in (read, at_once):
            assert (np.asarray(found)[:, empty] == 0).all(), label


def merging_is_lifting_the_union(weighting):
    """In any order and under any bracketing, field by field."""
    merge = compiled(weighting)["merge"]
    for label in ("random", "masked", "ties", "masked ties", "equal keys"):
        rows = CASES[label]
        whole = jax.tree.leaves(lift(weighting, rows))
        parts = [lift(weighting, rows, keys) for keys in TILES]
        for order in itertools.permutations(parts):
            for merged in associations(order, merge):
                for found, expected in zip(jax.tree.leaves(merged), whole, strict=True):
                    np.testing.assert_allclose(
                        found, expected, rtol=1e-14, atol=1e-14, err_msg=label
                    )


def replacing_is_reading_the_difference(weighting):
    for case, rows in CASES.items():
        nothing = Replacement(np.zeros_like(rows.scores), np.zeros_like(rows.values))
        assert (replace(weighting, rows, nothing) == 0).all(), case
        for kind, replacement in replacements(rows).items():
            expected = replaced_change(weighting.name, rows, replacement)
            found = replace(weighting, rows, replacement)
            assert_close(found, expected, label=f"{case}, {kind}")
            hidden = np.broadcast_to(~rows.visible[:, None, None], found.shape)
            assert (found[hidden] == 0).all(), case


def moves(rows, seed=0):
    """Moves of all columns: drawn, tied, under a common shift, at a dominant one."""
    rng = np.random.default_rng(seed)
    shape = rows.scores.shape
    value = rng.normal(size=(HEADS, ROWS, KEYS, WIDTH))
    drawn = rng.normal(size=shape)
    top = rows.scores == rows.scores.max(axis=-1, keepdims=True)
    kinds = {
        "drawn": drawn,
        "integer": rng.integers(-2, 3, shape).astype(np.float64),
        "to equal scores": -rows.scores,
        "scores kept": np.zeros(shape),
    }
    for shift in (-300.0, 40.0, 300.0):
        kinds[f"all by {shift:g}"] = drawn + shift
    for gap in GAPS[::2]:
        kinds[f"top leaves by {gap:g}"] = drawn - 2 * gap * top
        kinds[f"last arrives by {gap:g}"] = drawn + 2 * gap * (np.arange(KEYS) == 7)
    return {kind: Replacement(score, value) for kind, score in kinds.items()}


def perturbing_is_reading_the_difference(weighting):
    """In one tile and in several, whatever their order."""
    for case, rows in CASES.items():
        for kind, moved in moves(rows).items():
            expected = moved_change(weighting.name, rows, moved)
            # A shift of 300 leaves scores with a rounding of 300 eps.
            for tiles in (None, TILES, TILES[::-1]):
                found = perturb(weighting, rows, moved, tiles)
                assert_close(found, expected, absolute=2e-12, label=f"{case}, {kind}")
            empty = ~rows.visible.any(axis=1)
            assert (found[:, empty] == 0).all(), case


COUNTS = np.asarray([3, 1, KEYS - 4])


def classes_weigh_as_their_members(weighting):
    """Three classes of equal keys, read and moved, are the keys one by one."""
    ends = np.cumsum(COUNTS)
    # The tie order looks at the first of a class from the left, the last from the right.
    index = ends - 1 if getattr(weighting, "side", 1) < 0 else ends - COUNTS
    index, count = jnp.asarray(index, jnp.int32), jnp.asarray(COUNTS, float)

    def repeated(array, axis=-1):
        return np.repeat(array, COUNTS, axis=axis)

    @jax.jit
    def run(scores, values, visible, score_change, value_change):
        tile = Tile(scores, values, index, visible, count)
        summary = weighting.lift(tile)
        moved = moved_keys(weighting, tile, score_change, value_change)
        return weighting.read(summary), weighting.perturb(summary, moved)

    for case in ("random", "masked", "ties", "masked ties", "dominant by 36"):
        rows = CASES[case]
        few = Rows(rows.scores[..., :3], rows.values[:, :3], rows.visible[:, :3])
        many = Rows(
            repeated(few.scores), repeated(few.values, 1), repeated(few.visible)
        )
        for kind, moved in moves(rows).items():
            score, value = moved.score[..., :3], moved.value[:, :, :3]
            read, change = run(few.scores, few.values, few.visible, score, value)
            expected = attended(weighting.name, many)
            assert_close(read, expected, label=case)
            both = Replacement(repeated(score), repeated(value, 2))
            expected = moved_change(weighting.name, many, both)
            assert_close(change, expected, absolute=2e-12, label=f"{case}, {kind}")


# The rows of the laws against 50 digits: scores with ties for the hard weightings, and
# dominant columns; all differences of scores are exact in float64.
PRECISE = {
    "random": draw(6),
    "masked ties": draw(7, integer_scores(7), masked()),
    **{f"dominant by {gap:g}": dominated(gap, 8) for gap in GAPS[1:]},
}
SMALL = 1e-8


def small_replacements_keep_their_digits(weighting):
    """Where the difference of two attended values has lost half of them."""
    lost = 0.0
    for case, rows in PRECISE.items():
        drawn = replacements(rows, 9)["drawn"]
        small = Replacement(SMALL * drawn.score, SMALL * drawn.value)
        expected = replaced_change(weighting.name, rows, small, MANY_DIGITS)
        found = replace(weighting, rows, small)
        assert_keeps_digits(found, expected, case)
        subtracted = replaced_change(weighting.name, rows, small)
        scale = np.abs(expected.astype(float)).max()
        lost = max(lost, np.abs(subtracted - expected.astype(float)).max() / scale)
    assert lost > 1e-11, "the cases do not tell a change from a subtraction"


def large_replacements_keep_their_digits(weighting):
    """A dominant column leaves or arrives; the changes of the others are tiny."""
    for case, rows in PRECISE.items():
        for kind, replacement in replacements(rows, 10).items():
            if kind == "integer" or "800" in kind + case:
                continue
            expected = replaced_change(weighting.name, rows, replacement, MANY_DIGITS)
            found = replace(weighting, rows, replacement)
            assert_keeps_digits(found, expected, f"{case}, {kind}")


def moves_keep_their_digits(weighting):
    """All columns by little, or one alone, however small or large its weight is."""
    alone = np.arange(KEYS) == 7
    for case, rows in PRECISE.items():
        drawn = moves(rows, 11)["drawn"]
        top = rows.scores == rows.scores.max(axis=-1, keepdims=True)
        kinds = {
            "small": Replacement(SMALL * drawn.score, SMALL * drawn.value),
            "one": Replacement(alone * drawn.score, alone[:, None] * drawn.value),
            "top": Replacement(top * drawn.score, 0 * drawn.value),
            "all but the top": Replacement(~top * drawn.score, 0 * drawn.value),
        }
        if "800" in case:
            # Weights that are not normal floats are all that changes.
            kinds = {"small": kinds["small"]}
        for kind, moved in kinds.items():
            expected = moved_change(weighting.name, rows, moved, MANY_DIGITS)
            for tiles in (None, TILES):
                found = perturb(weighting, rows, moved, tiles)
                assert_keeps_digits(found, expected, f"{case}, {kind}")


LAWS = {
    law.__name__: law
    for law in (
        read_is_the_weighted_mean,
        merging_is_lifting_the_union,
        replacing_is_reading_the_difference,
        perturbing_is_reading_the_difference,
        classes_weigh_as_their_members,
        small_replacements_keep_their_digits,
        large_replacements_keep_their_digits,
        moves_keep_their_digits,
    )
}
