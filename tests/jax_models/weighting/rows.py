"""Rows of scores and values to attend to, and the attended value by definition.

All rows have one shape, so that every law compiles once per weighting: h = 2 heads,
r = 4 query rows, k = 8 keys, values of width 3. The oracle is the weighting of the
reference transformer, in float64 or with many digits.
"""

import dataclasses

import numpy as np

from benchmarks import reference

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
