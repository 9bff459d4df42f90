"""Enclosed scores of a block of rows, and their maximisers.

A hard weighting compares integer cells of scores; the maximisers are those in the best
cell. Scores are kept before the temperature, which the twin replaces; each with a radius
that is 0 where a count of bits proves float64 exact.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.numbers.rounding import gamma_upper
from bounds.restriction.enclosed import (
    SMALLEST,
    Enclosed,
    counted,
    inflated,
    rounded,
    row_norms,
    units,
)
from jax_models import TieError

UNIT = 2.0**-53
NO_CLASS = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Winners:
    """Maximisers of each row.

    Attributes:
        members: Whether a key is a maximiser.
        count: Number of maximisers; 0 for a row that sees nothing.
        gap: Distance to the next score, rounded down; inf where there is none.
        spread: Widest distance of two maximisers, rounded up.
        others: Number of visible keys that are no maximisers.
    """

    members: Bool[np.ndarray, "inputs rows keys"]
    count: Int[np.ndarray, "inputs rows"]
    gap: Float[np.ndarray, "inputs rows"]
    spread: Float[np.ndarray, "inputs rows"]
    others: Int[np.ndarray, "inputs rows"]


def score_block(query: Enclosed, key: Enclosed) -> Enclosed:
    """Returns the scores of every query row with every key row."""
    width = key.value.shape[-1]
    score = query.value @ key.value.swapaxes(-1, -2)
    known_q, known_k = ((x.radius == 0).all(axis=-1) for x in (query, key))
    counted_all = _counted_products(query.value[known_q], key.value[known_k])
    if counted_all and known_q.all() and known_k.all():
        return Enclosed.exactly(score)
    # Cauchy's inequality on magnitudes: no second product of matrices.
    q, q_off, q_all = (x[..., :, None] for x in row_norms(query))
    _, k_off, k_all = (x[..., None, :] for x in row_norms(key))
    radius = q_off * k_all + q * k_off + 2 * gamma_upper(width + 1) * q_all * k_all
    radius = inflated(radius, 12) + 4 * (width + 1) * SMALLEST
    exact = known_q[..., :, None] & known_k[..., None, :] & counted_all
    return Enclosed(score, np.where(exact, 0.0, radius))


def _counted_products(
    query: Float[np.ndarray, "rows d_k"], key: Float[np.ndarray, "keys d_k"]
) -> bool:
    """Whether no inner product of a query and a key is rounded."""
    if not query.size or not key.size:
        return True
    size = np.abs(query).sum(axis=-1).max() * np.abs(key).max()
    unit = units(query).min() + units(key).min()
    return bool(counted(np.asarray(inflated(size, 80)), np.asarray(unit)))


def safe_radius(score: Enclosed) -> Float[np.ndarray, "..."]:
    """Radii that also cover the rounding of adding and subtracting them."""
    size = np.abs(score.value) + score.radius
    return np.where(score.radius > 0, score.radius + 4 * UNIT * size, 0)


def find_winners(
    score: Enclosed,
    seen: Bool[np.ndarray, "rows keys"],
    cell_width: Float[np.ndarray, "rows 1"],
    classes: Int[np.ndarray, "inputs keys"],
    rows: Int[np.ndarray, "rows"],
    name: str,
) -> Winners:
    """Returns the maximisers of each row by score cells, as hard weightings do."""
    cells = np.where(seen, np.rint(score.value / cell_width), -np.inf)
    best = cells.max(axis=-1, keepdims=True)
    members = (cells == best) & seen
    others = seen & ~members
    off = safe_radius(score)
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


def mean_of_members(
    members: Bool[np.ndarray, "inputs rows keys"], values: Enclosed
) -> Enclosed:
    """Returns the mean value of each row's members; zero for a row without members."""
    chosen = members.astype(np.float64)
    count = np.maximum(chosen.sum(axis=-1, keepdims=True), 1.0)
    total = chosen @ values.value
    size = chosen @ np.abs(values.value)
    brought = chosen @ values.radius
    unit = units(values.value).min(axis=-2, keepdims=True)
    mean = total / count
    whole = counted(np.abs(mean) * count, units(mean)) & (mean * count == total)
    # A mean is exact where both the sum and the quotient are.
    exact = (brought == 0) & counted(inflated(size, members.shape[-1]), unit) & whole
    steps = members.shape[-1] + 2
    return rounded(mean, inflated(brought / count, steps), size / count, steps, exact)
