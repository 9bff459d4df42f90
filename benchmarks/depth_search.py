"""Searches parameters for thresholds of depth, and prints rows of their table.

The table is `bounds/restriction/closed_form/routes.py`; what a search finds is proved
there, so that a poor one makes a weak threshold, not a false one. Both are in floats:

* Steps of Theorem 8, by beam search: of two lists of steps that end at the same depth of
  trees, the one that leaves the larger fraction φ is better whatever follows. So the best is
  kept for every depth, layer by layer, and of the depths those with the largest φ / t.
* Parameters for DYCK, by descent from those: one is moved at a time, by large steps first,
  while the threshold falls: p_l t_{l-1} on a grid, t_l, the spread c_l, and the risk δ.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from absl import app, flags

from bounds.numbers.statements import several, whole
from bounds.restriction.closed_form.dyck import (
    FLOATS,
    DyckParameters,
    dyck_slope,
    dyck_threshold,
)
from bounds.restriction.closed_form.route_switching import (
    DIGITS,
    SwitchingStep,
    deep_probability,
)
from bounds.restriction.closed_form.routes import proof_digits

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
        """Sort key of a point: (0, threshold), or (1, -slope) if it proves nothing."""
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
    """Returns a local minimum of `cost`, or the best point after `MOST_LOOKS`."""
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


# p t runs through the multiples of 1/STEPS up to 3/5; the best are at 0.08 to 0.4.
STEPS = 400
BEAM = 16
# Orders of Lemma 7's sums that a search looks at: with r w < 6/5 the next is below 1e-9.
ORDERS = 24
# What one evaluation of B_h(s) for all p takes, and what a search and its proof may.
SECONDS_EACH = 2e-4
MOST_SECONDS = 30.0
# A tree deeper than this is a width whose exact tails take minutes.
WIDEST = 160

_Reached = dict[int, tuple[float, tuple[SwitchingStep, ...]]]


def search_steps(
    num_layers: int, num_heads: int, *, free: int = 1, steps: int = STEPS
) -> tuple[SwitchingStep, ...] | None:
    """Search the steps of Theorem 8 that give the smallest threshold.

    The depth that trees may have is doubled until the best stay away from it.
    """
    layers = whole("num_layers", num_layers, 1)
    heads = whole("num_heads", num_heads, 1)
    free, steps = whole("free", free, 1), whole("steps", steps, 2)
    found, deepest = None, 16
    while affordable(layers, heads, deepest):
        found = _search(layers, heads, deepest, free, steps)
        if found is not None and all(step.depth < 0.8 * deepest for step in found):
            return found
        deepest *= 2
    return found


def affordable(layers: int, heads: int, deepest: int) -> bool:
    """Whether a search up to depth `deepest`, and its proof, should take under 30 s."""
    widths = 1 + BEAM * max(0, layers - 2)
    narrow = layers <= 2 or deepest <= WIDEST
    return narrow and widths * heads * deepest * SECONDS_EACH <= MOST_SECONDS


def _search(
    layers: int, heads: int, deepest: int, free: int, steps: int
) -> tuple[SwitchingStep, ...] | None:
    best: _Reached = {1: (1.0, ())}
    shares: dict[int, np.ndarray] = {}
    for _ in range(layers - 1):
        reached: _Reached = {}
        for t, (fraction, path) in best.items():
            p = np.arange(1, 3 * steps // 5 + 1) / (steps * t)
            if t not in shares:
                shares[t] = deep_shares(t, heads, deepest, p)
            kept = p[:, None] * fraction - (heads + 1) * t * shares[t]
            choice = np.argmax(kept, axis=0)
            for new in range(1, deepest + 1):
                value = float(kept[choice[new], new])
                if value > 0 and (new not in reached or value > reached[new][0]):
                    star = Fraction(int(choice[new]) + 1, steps * t)
                    reached[new] = (value, (*path, SwitchingStep(star, new)))
        best = _promising(reached)
    if not best:
        return None
    costs = {
        t: ((heads + 1) * t + free - 1) / fraction for t, (fraction, _) in best.items()
    }
    return best[min(costs, key=lambda t: costs[t])][1]


def _promising(reached: _Reached) -> _Reached:
    """Returns the depths of largest φ / t, of those that no smaller depth surpasses."""
    kept, largest = [], 0.0
    for t in sorted(reached):
        if reached[t][0] > largest:
            kept.append(t)
            largest = reached[t][0]
    kept.sort(key=lambda t: reached[t][0] / t, reverse=True)
    return {t: reached[t] for t in kept[:BEAM]}


def deep_shares(t: int, heads: int, deepest: int, p: np.ndarray) -> np.ndarray:
    """Estimate R of `deep_probability` for every p and every t' up to `deepest`."""
    tails = _tails(t, heads, deepest + 1, p)
    shares = np.zeros((len(p), deepest + 1))
    for j in range(min(t, ORDERS) + 1):
        weight = math.comb(t, j) * (1 - p) ** (t - j) * (2 * p) ** j
        left = np.maximum(0, np.arange(deepest + 1) + 1 - j)
        shares += weight[:, None] * tails[:, left]
    return shares


def _tails(width: int, heads: int, most: int, p: np.ndarray) -> np.ndarray:
    """B_H(s) of `depth_tails` [p, s], with the sums cut off at ORDERS."""
    last = min(width, ORDERS)
    orders = np.arange(last + 1)
    ratio = (2 * p / (1 + p))[:, None]
    weights = np.array([float(math.comb(width, j)) for j in orders]) * ratio**orders
    differences = np.array(
        [[math.comb(i, j) * (-1.0) ** (i - j) for i in orders] for j in orders]
    )
    # What rounding leaves of the differences: below it the plain sum decides.
    noise = 1e-16 * (weights * 2.0**orders).sum(axis=1)
    previous = np.zeros((len(p), most + 1))
    previous[:, 0] = 1
    for _ in range(heads):
        current = np.ones((len(p), most + 1))
        for s in range(1, most + 1):
            values = np.ones((len(p), last + 1))
            values[:, 0] = previous[:, s]
            j = np.arange(1, min(last, s - 1) + 1)
            deeper = (2.0**j - 1) * current[:, s - j] + previous[:, s - j]
            values[:, j] = np.minimum(1, deeper)
            plain = (weights * values).sum(axis=1)
            # einsum, not @: a threaded product waits longer than it computes here.
            rising = np.maximum(0, np.einsum("pj,ji->pi", values, differences))
            moebius = (weights * rising).sum(axis=1) + noise
            bound = np.minimum(np.minimum(plain, moebius), current[:, s - 1])
            current[:, s] = np.minimum(1, bound)
        previous = current
    return previous


LAYERS = flags.DEFINE_integer("num_layers", 2, "layers L", lower_bound=2)
HEADS = flags.DEFINE_integer("num_heads", 1, "heads H", lower_bound=1)


def found_rows(num_layers: int, num_heads: int) -> Iterator[str]:
    """Yields the table's rows of PARITY and DYCK; none if the search would take too long."""
    steps = search_steps(num_layers, num_heads)
    if steps is None:
        return
    told = ", ".join(f"{step.star_probability} {step.depth}" for step in steps)
    yield f"{num_layers} {num_heads}: {told}"
    dyck = search_dyck_parameters(num_heads, steps, proof_digits(num_layers))
    if dyck is None:
        return
    told = ", ".join(
        f"{step.star_probability} {step.depth} {'none' if c is None else c}"
        for step, c in zip(dyck.steps, dyck.spreads, strict=True)
    )
    yield f"{num_layers} {num_heads}: {told} | {dyck.delta}"


def main(arguments: Sequence[str]) -> None:
    """Print the table's rows of one number of layers and heads."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected {' '.join(arguments[1:])}")
    rows = list(found_rows(LAYERS.value, HEADS.value))
    print("\n".join(rows or ["too large to be searched"]))


if __name__ == "__main__":
    app.run(main)
