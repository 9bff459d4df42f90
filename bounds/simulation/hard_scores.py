"""Enclosed scores of a block of rows, and which positions win.

A hard weighting compares integer cells of scores; the maximisers are those in the best
cell. Scores are kept before the temperature, which the twin replaces; each with a radius
that is 0 where a count of bits proves float64 exact.

Shapes: S inputs, r query rows, n keys, e = d_k.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from bounds.numbers.rounding import gamma_upper
from bounds.restriction.enclosed import (
    SMALLEST,
    Enclosed,
    Floats,
    counted,
    inflated,
    rounded,
    units,
)
from jax_models import TieError

Booleans = NDArray[np.bool_]
UNIT = 2.0**-53
NO_CLASS = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Winners:
    """Who wins in each row.

    Attributes:
        members: [S, r, n] the maximisers, all of them.
        count: [S, r] how many; 0 for a row that sees nothing.
        gap: [S, r] distance to the next score, rounded down; inf where there is none.
        spread: [S, r] widest distance of two maximisers, rounded up.
        others: [S, r] how many visible positions are no maximisers.
    """

    members: Booleans
    count: NDArray[np.int64]
    gap: Floats
    spread: Floats
    others: NDArray[np.int64]


def score_block(query: Enclosed, key: Enclosed) -> Enclosed:
    """Returns the scores [S, r, n] of queries [S, r, e] and keys [S, n, e]."""
    width = key.value.shape[-1]
    score = query.value @ key.value.swapaxes(-1, -2)
    known_q, known_k = ((x.radius == 0).all(axis=-1) for x in (query, key))
    counted_all = _counted_products(query.value[known_q], key.value[known_k])
    if counted_all and known_q.all() and known_k.all():
        return Enclosed.exactly(score)
    # Cauchy's inequality on magnitudes: no second product of matrices.
    q, q_off, q_all = (x[..., :, None] for x in _norms(query))
    _, k_off, k_all = (x[..., None, :] for x in _norms(key))
    radius = q_off * k_all + q * k_off + 2 * gamma_upper(width + 1) * q_all * k_all
    radius = inflated(radius, 12) + 4 * (width + 1) * SMALLEST
    exact = known_q[..., :, None] & known_k[..., None, :] & counted_all
    return Enclosed(score, np.where(exact, 0.0, radius))


def _counted_products(query: Floats, key: Floats) -> bool:
    """Whether no inner product of rows [r, e] of both is rounded."""
    if not query.size or not key.size:
        return True
    size = np.abs(query).sum(axis=-1).max() * np.abs(key).max()
    unit = units(query).min() + units(key).min()
    return bool(counted(np.asarray(inflated(size, 80)), np.asarray(unit)))


def _norms(rows: Enclosed) -> tuple[Floats, Floats, Floats]:
    """Norms of values, of radii and of both together, none below the true."""
    steps = rows.value.shape[-1] + 4
    value = inflated(np.sqrt((rows.value**2).sum(axis=-1)), steps)
    radius = inflated(rows.radius.sum(axis=-1), steps)
    return value, radius, inflated(value + radius, 1)


def find_winners(
    score: Enclosed,
    seen: Booleans,
    cell_width: Floats,
    classes: NDArray[np.int64],
    rows: NDArray[np.int64],
    name: str,
) -> Winners:
    """Returns who wins in each row, by score cells as the model format has it.

    Args:
        score: Before the temperature [S, r, n].
        seen: The mask [r, n].
        cell_width: Width of a cell in these units [r, 1]: tie_resolution times the
            model's own temperature.
        classes: Keys of one class are equal real numbers, whatever was rounded [S, n].
        rows: Their positions [r], for messages …
        name: … and what the model format calls the layer and head.

    Raises:
        TieError: Rounding decides who wins: a score stands in the cell beside the best,
            or not certainly below it.
    """
    cells = np.where(seen, np.rint(score.value / cell_width), -np.inf)
    best = cells.max(axis=-1, keepdims=True)
    members = (cells == best) & seen
    others = seen & ~members
    # What adding and subtracting a radius rounds.
    off = np.where(
        score.radius > 0,
        score.radius + 4 * UNIT * (np.abs(score.value) + score.radius),
        0,
    )
    low = np.where(members, score.value - off, np.inf).min(axis=-1)
    high = np.where(members, score.value + off, -np.inf).max(axis=-1)
    next_ = np.where(others, score.value + off, -np.inf).max(axis=-1)
    count = members.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        # Exact scores are few enough units for their difference to be exact too.
        gap = (low - next_) * (1.0 if score.exact else 1 - 8 * UNIT)
        spread = inflated(high - low, 2)
    largest = np.where(members, classes[:, None], -1).max(axis=-1)
    least = np.where(members, classes[:, None], NO_CLASS).min(axis=-1)
    spread = np.where((count > 1) & (largest > least), spread, 0.0)
    gap = np.where(others.any(axis=-1), gap, np.inf)
    beside = (cells == best - 1).any(axis=-1) & (count > 0)
    if np.any(beside | (gap <= 0)):
        at = np.argwhere(beside | (gap <= 0))[0]
        raise TieError(
            f"{name}, row {rows[at[1]]}: the best score {low[tuple(at)]!r} and "
            f"the next {next_[tuple(at)]!r} stand in one score cell or in neighbouring "
            "ones, so rounding decides the winner; widen or shrink tie_resolution"
        )
    return Winners(members, count, gap, spread, others.sum(axis=-1))


def mean_of_members(members: Booleans, values: Enclosed) -> Enclosed:
    """Returns the means [S, r, v] of the values [S, n, v] of the members of each row.

    Exact where both the sum and the quotient are; zero for a row without members.

    Args:
        members: [S, r, n].
        values: [S, n, v].
    """
    chosen = members.astype(np.float64)
    count = np.maximum(chosen.sum(axis=-1, keepdims=True), 1.0)
    total = chosen @ values.value
    size = chosen @ np.abs(values.value)
    brought = chosen @ values.radius
    unit = units(values.value).min(axis=-2, keepdims=True)
    mean = total / count
    whole = counted(np.abs(mean) * count, units(mean)) & (mean * count == total)
    exact = (brought == 0) & counted(inflated(size, members.shape[-1]), unit) & whole
    steps = members.shape[-1] + 2
    return rounded(mean, inflated(brought / count, steps), size / count, steps, exact)
