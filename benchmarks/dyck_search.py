"""Finding parameters for DYCK: descent from those of PARITY, in floats.

One parameter is moved at a time, by large steps first, while the threshold falls: p_l
t_{l-1} on a grid, t_l, the spread c_l, and the risk δ. Nothing here is certified;
`dyck_threshold` proves what is found.
"""

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from benchmarks.switching_search import affordable, deep_shares
from bounds.numbers.statements import several, whole
from bounds.restriction.closed_form.dyck import (
    FLOATS,
    DyckParameters,
    dyck_slope,
    dyck_threshold,
)
from bounds.restriction.closed_form.switching_lemma import (
    DIGITS,
    SwitchingStep,
    deep_probability,
)

GRID = 400
DELTAS = tuple(Fraction(1, n) for n in (5, 6, 8, 12, 24, 100, 1000))
_PER_CENT = (250, 200, 160, 120, 100, 80, 60, 45, 35, 25, 18, 12, 8, 5, 3, 2, 1)
SPREADS = (None, *(Fraction(n, 100) for n in _PER_CENT))
# By how much products (in cells), depths and spreads are moved, largest first.
MOVES = ((16, 4, 4), (4, 2, 2), (1, 1, 1))
FIRST_DELTA = 2
# How many points a descent looks at, times the steps.
MOST_LOOKS = 2400

# p_l t_{l-1} in cells, t_l, the index of c_l, for every step; and the index of δ.
_Point = tuple[tuple[tuple[int, ...], ...], int]
_Cost = Callable[[_Point], tuple[int, float]]


def search_dyck_parameters(
    num_heads: int, start: tuple[SwitchingStep, ...], digits: int = DIGITS
) -> DyckParameters | None:
    """Search parameters with a small threshold for DYCK.

    A local minimum of `dyck_threshold` in floats, with R_l then made exact.

    Args:
        num_heads: H >= 1.
        start: Steps that serve PARITY; at least one.
        digits: Decimals of R_l.

    Returns:
        The parameters, an estimate of the best; None where the descent would take
        trees that are too deep to look at.

    Raises:
        ValueError: A number is below 1, or there is no step.

    Source:
        docs/theory/hard-attention.md, section 7.
    """
    num_heads, digits = whole("num_heads", num_heads, 1), whole("digits", digits, 1)
    start = several("start", start, SwitchingStep, least=1)
    deepest = 2 * max(step.depth for step in start) + 20
    if not affordable(len(start) + 1, num_heads, deepest):
        return None
    table = functools.cache(
        lambda width, cell: deep_shares(
            width, num_heads, deepest, np.array([cell / (GRID * width)])
        )[0]
    )

    def cost(point: _Point) -> tuple[int, float]:
        """Order points: those that prove something by n, the others by what they lose."""
        parameters = _parameters(
            num_heads, point, lambda w, c, t: float(table(w, c)[t])
        )
        length = dyck_threshold(parameters, FLOATS)
        return (1, -float(dyck_slope(parameters))) if length is None else (0, length)

    found = [_descended(_first(start, spread), cost, deepest) for spread in (0, 7)]
    point = min(found, key=cost)
    exact = lambda width, cell, depth: deep_probability(
        width, num_heads, depth, Fraction(cell, GRID * width), digits
    )
    return _parameters(num_heads, point, exact)


def _descended(point: _Point, cost: _Cost, deepest: int) -> _Point:
    """Returns a local minimum, or the best of so many points."""
    best, improved, looks = cost(point), True, 0
    while improved and looks < MOST_LOOKS // len(point[0]):
        improved = False
        for other in _neighbours(point, deepest):
            looks += 1
            if (found := cost(other)) < best:
                point, best, improved = other, found, True
                break
    return point


def _first(start: tuple[SwitchingStep, ...], spread: int) -> _Point:
    cells, depth = [], 1
    for step in start:
        cell = round(step.star_probability * depth * GRID)
        cells.append((min(max(cell, 1), GRID // 2), step.depth + 4, spread))
        depth = step.depth
    return tuple(cells), FIRST_DELTA


def _parameters(
    num_heads: int, point: _Point, share: Callable[[int, int, int], float | Fraction]
) -> DyckParameters:
    steps, deep, width = [], [], 1
    for cell, depth, _ in point[0]:
        steps.append(SwitchingStep(Fraction(cell, GRID * width), depth))
        deep.append(Fraction(share(width, cell, depth)))
        width = depth
    spreads = tuple(SPREADS[spread] for _, _, spread in point[0])
    return DyckParameters(
        num_heads, tuple(steps), tuple(deep), spreads, DELTAS[point[1]]
    )


def _neighbours(point: _Point, deepest: int) -> Iterator[_Point]:
    cells, risk = point
    limits = (GRID // 2, deepest, len(SPREADS) - 1)
    for moves in MOVES:
        for index, cell in enumerate(cells):
            for axis, by in enumerate(moves):
                for moved in (cell[axis] + by, cell[axis] - by):
                    if (axis != 2) <= moved <= limits[axis]:
                        other = (*cell[:axis], moved, *cell[axis + 1 :])
                        yield (*cells[:index], other, *cells[index + 1 :]), risk
    for other in (risk - 1, risk + 1):
        if 0 <= other < len(DELTAS):
            yield cells, other
