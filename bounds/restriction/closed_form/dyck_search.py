"""Finding parameters for DYCK: descent from those of PARITY, in floats.

One parameter is moved at a time, by large steps first, while the threshold falls: p_l
t_{l-1} on a grid, t_l, the spread c_l, and the risk δ. Nothing here is certified;
`dyck_threshold` proves what is found.

A threshold for DYCK without a search, for any number of layers and heads.

The parameters of Corollary 9 with trees deeper by H BITS, so that R_l, which is at most
1.128 H 2^{-s_l}, leaves room for the probability with which the sum stays near 0.

Parameters for DYCK that were searched at length, as rationals.

For L layers and H heads: the steps, the spreads and δ. Each row is a proof, which
`dyck_threshold` recomputes; nothing rests on how it was found.
"""

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from bounds.numbers.statements import several, whole
from bounds.restriction.closed_form.dyck import (
    FLOATS,
    DyckParameters,
    dyck_slope,
    dyck_threshold,
    proves,
)
from bounds.restriction.closed_form.route_switching import closed_form_switching
from bounds.restriction.closed_form.switching_lemma import (
    DIGITS,
    SwitchingStep,
    deep_probability,
)
from bounds.restriction.closed_form.switching_search import affordable, deep_shares
from bounds.restriction.closed_form.tower import Tower

Row = tuple[tuple[SwitchingStep, ...], tuple[Fraction | None, ...], Fraction]

DYCK_RELEASED: dict[tuple[int, int], Row] = {
    (2, 1): (
        (SwitchingStep(Fraction(173, 400), 11),),
        (None,),
        Fraction(1, 5),
    ),
    (2, 2): (
        (SwitchingStep(Fraction(139, 400), 14),),
        (None,),
        Fraction(1, 5),
    ),
    (2, 4): (
        (SwitchingStep(Fraction(93, 400), 17),),
        (Fraction(3, 5),),
        Fraction(1, 5),
    ),
    (2, 8): (
        (SwitchingStep(Fraction(41, 200), 25),),
        (Fraction(3, 5),),
        Fraction(1, 5),
    ),
    (3, 1): (
        (
            SwitchingStep(Fraction(13, 40), 7),
            SwitchingStep(Fraction(73, 2800), 25),
        ),
        (
            None,
            Fraction(3, 25),
        ),
        Fraction(1, 12),
    ),
    (3, 2): (
        (
            SwitchingStep(Fraction(11, 40), 10),
            SwitchingStep(Fraction(11, 800), 25),
        ),
        (
            None,
            Fraction(1, 20),
        ),
        Fraction(1, 12),
    ),
    (3, 4): (
        (
            SwitchingStep(Fraction(6, 25), 15),
            SwitchingStep(Fraction(11, 1500), 27),
        ),
        (
            None,
            Fraction(1, 20),
        ),
        Fraction(1, 12),
    ),
    (3, 8): (
        (
            SwitchingStep(Fraction(1, 5), 22),
            SwitchingStep(Fraction(1, 220), 34),
        ),
        (
            None,
            Fraction(1, 20),
        ),
        Fraction(1, 12),
    ),
    (4, 1): (
        (
            SwitchingStep(Fraction(27, 80), 7),
            SwitchingStep(Fraction(1, 56), 12),
            SwitchingStep(Fraction(19, 1600), 28),
        ),
        (
            None,
            Fraction(8, 5),
            Fraction(1, 20),
        ),
        Fraction(1, 24),
    ),
    (4, 2): (
        (
            SwitchingStep(Fraction(7, 25), 10),
            SwitchingStep(Fraction(9, 800), 16),
            SwitchingStep(Fraction(47, 6400), 28),
        ),
        (
            None,
            Fraction(6, 5),
            Fraction(1, 20),
        ),
        Fraction(1, 24),
    ),
    (4, 4): (
        (
            SwitchingStep(Fraction(97, 400), 15),
            SwitchingStep(Fraction(41, 6000), 21),
            SwitchingStep(Fraction(3, 560), 35),
        ),
        (
            None,
            Fraction(6, 5),
            Fraction(1, 20),
        ),
        Fraction(1, 24),
    ),
    (4, 8): (
        (
            SwitchingStep(Fraction(81, 400), 22),
            SwitchingStep(Fraction(37, 8800), 28),
            SwitchingStep(Fraction(3, 800), 45),
        ),
        (
            None,
            Fraction(6, 5),
            Fraction(3, 100),
        ),
        Fraction(1, 24),
    ),
}
BITS = 12
SPREAD = Fraction(1, 20)
DELTA = Fraction(1, 100)
MOST_ROUNDS = 400
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


def closed_form_dyck(num_layers: int, num_heads: int) -> Tower | None:
    """Returns a length from which on DYCK is out of reach, for L >= 2.

    The first 2 · 4^i times Corollary 9's threshold for PARITY that `proves` accepts.

    Args:
        num_layers: L >= 2.
        num_heads: H >= 1.

    Returns:
        An even length, certified; None where none was accepted, or where n has more
        than 10^6 bits.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, sections 6 and 7, Corollary 9.
    """
    layers = whole("num_layers", num_layers, 2)
    heads = whole("num_heads", num_heads, 1)
    closed = closed_form_switching(layers, heads)
    steps, deep, depth = [], [], 1
    for l, bits in enumerate(closed.bits):
        p = Fraction(100, 832 * depth)
        more = BITS * (l + 1)
        deep.append(Fraction(1128 * heads, 1000 * 2 ** (bits + more)))
        depth += heads * (bits + more - 1)
        steps.append(SwitchingStep(p, depth))
    spreads = (SPREAD,) * len(steps)
    parameters = DyckParameters(heads, tuple(steps), tuple(deep), spreads, DELTA)
    if closed.length.level:
        return None
    half = int(closed.length.top)
    for _ in range(MOST_ROUNDS):
        if proves(parameters, 2 * half):
            return Tower.of(2 * half)
        half <<= 2
    return None


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
