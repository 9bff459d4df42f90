"""Bounds on the influence of one symbol on every row of masked attention.

Theorem C, the corrected Lemma 5 of Hahn 2020, is a recursion over layers; under a causal
mask there is a closed form of order (ln(j/i))^{L-1}/j, i the changed position, j the row and
L the number of layers. A row is the activation at one position. Attention weights of one row
differ by at most a factor E = e^{2A}, A half the largest difference of its logits, so that
an average of the keys' changes is at most W, their largest mean with weights in [1/E, 1].
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from mpmath import MPContext

from bounds.lemma5.closed_form.layer_constants import LayerConstants
from bounds.lemma5.closed_form.recursion import LayerInfluence
from bounds.numbers.interval import Interval, exp, interval, log, lower, maximum, upper
from bounds.numbers.statements import (
    CONSTANTS,
    DIFFER,
    MASKED,
    choice,
    instance,
    nonnegative,
    several,
    whole,
)

ByRow: TypeAlias = Float[np.ndarray, "rows"]

UNIT_ROUNDOFF = 2.0**-53
MASKS = ("none", "future", "past", "strict_future", "strict_past")
_SMALLEST_NORMAL = 2.0**-1022


# W(r; m) of docs/theory/lemma5.md, section 3, for many rows at once whose r are prefixes of
# one sorted array, in float64, by Dinkelbach's iteration: λ, the mean of some set of heavy
# numbers, then the set of those above λ, and so on, until none is left to be added.
#
# Rounding. u = 2^-53. Sums of T non-negative floats have relative error at most γ_T =
# T u/(1 - T u), quotients and products u each; every quantity below is a sum of
# non-negative terms, so with N = T + 8 operations its computed value is within a factor
# (1 ± 2 N u) of the true one (N u <= 1/4). A mean raised three times by s = 2 N u is
# proved when its own set is the one above it: (1 + 3s)(1 - s) > 1 + s. Underflow loses at
# most 2^-1074 per product, nothing beside a numerator of at least r_1 (callers scale r_1
# to about 1).
def largest_weighted_mean(
    numbers: Float[np.ndarray, "changes"],
    present: Int[np.ndarray, "rows"],
    visible: Int[np.ndarray, "rows"],
    inverse_ratio: float,
) -> ByRow:
    """Upper bound on W, the largest weighted mean of the first `present` numbers, by row."""
    # The numbers are sorted downwards, the first at most about 1; `visible` - `present`
    # zeros are averaged with them. `inverse_ratio` is 1/E in [0, 1], rounded down. The
    # bound is within 1e-9 of W, relatively, up to a million numbers.
    bounds = np.zeros(len(present))
    rows = np.flatnonzero(present)
    if not len(rows) or numbers[0] == 0:
        return bounds
    c, m = present[rows], visible[rows]
    sums = np.concatenate([[0.0], np.cumsum(numbers)])
    extra = 1.0 - inverse_ratio
    numerator = lambda heavy: inverse_ratio * sums[c] + extra * sums[heavy]
    denominator = lambda heavy: inverse_ratio * m + extra * heavy

    slack = 2 * (len(numbers) + 8) * UNIT_ROUNDOFF
    above = c
    mean = np.zeros(len(rows))
    unproved = np.ones(len(rows), bool)
    while np.any(unproved):
        total = np.where(unproved, denominator(above), 1.0)
        raised = numerator(above) / total * (1 + 3 * slack)
        mean = np.where(unproved, raised, mean)
        above = np.minimum(np.searchsorted(-numbers, -mean, side="left"), c)
        # With nothing above it, every number is at most the mean.
        right = mean * denominator(above) * (1 - slack)
        unproved = (above > 0) & (numerator(above) * (1 + slack) > right)
    # A mean is at most the largest number, which takes no rounding.
    bounds[rows] = np.minimum(mean, numbers[0])
    return bounds


# Counts only: which rows they are does not matter to the mean. Rows 0 … n - 1 are the rows
# j != i; then comes the changed row, once for every i.
def visible_changes(
    mask: str, changed: Bool[np.ndarray, "rows"]
) -> tuple[Int[np.ndarray, "counted"], Int[np.ndarray, "counted"]]:
    """Counts of changed rows, and of all rows, that each row sees under a mask."""
    # `changed` is whether row j can differ from the base when i != j. The counts leave
    # out the row's own change, since under j = i it is the changed row.
    n, strict = len(changed), mask.startswith("strict")
    rows = np.arange(n)
    if mask == "none":
        total, seen = np.full(n, n), np.full(n, np.sum(changed))
    elif mask.endswith("future"):
        total, seen = rows + 1 - strict, np.cumsum(changed) - (changed & strict)
    else:
        total = n - rows - strict
        seen = np.cumsum(changed[::-1])[::-1] - (changed & strict)
    itself = 0 if strict else 1
    # Whether there is an i != j that the row sees.
    present = np.minimum(seen + (total > itself), total)
    own_present = np.minimum(itself + seen - (changed & (itself == 1)), total)
    return np.concatenate([present, own_present]), np.concatenate([total, total])


def _per_row(counted: Shaped[np.ndarray, "counted"]) -> Shaped[np.ndarray, "rows"]:
    """First n numbers, of the rows j != i, then the largest of the n of row i, over all i."""
    n = len(counted) // 2
    return np.append(counted[:n], np.max(counted[n:]))


# The recursion, its proof and its cost: docs/theory/lemma5.md, section 3.
def masked_recursion(
    layers: Sequence[LayerConstants],
    masks: Sequence[str],
    length: int,
    distance: float,
    *,
    query: int = -1,
    saturating: bool = True,
) -> LayerInfluence:
    """Bound the influence of one symbol, wherever it is, on a row of masked attention.

    Args:
        layers: Constants of layers 1 … L.
        masks: One of `MASKS` per layer; "future" lets j see w <= j.
        length: n >= 1.
        distance: D, between the two embeddings at i.
        query: j, the row that is read; negative ones count from the end.
        saturating: Whether to use that averages and outputs have a bounded range.

    Returns:
        Upper bounds after the last layer: on row j under a change at any i != j, and on
        row i, whichever it is.

    Raises:
        ValueError: A mask is unknown, counts differ, or a number is out of its range.

    Source:
        Hahn 2020, Lemma 5, corrected.
    """
    n = whole("length", length, 1)
    layers = several("layers", layers, LayerConstants, least=1)
    each = enumerate(several("masks", masks))
    masks = [choice(f"masks[{index}]", mask, MASKS) for index, mask in each]
    if len(layers) != len(masks):
        raise ValueError(
            f"{len(layers)} layers and {len(masks)} masks, expected one mask per layer"
        )
    instance("saturating", saturating, bool)
    row = whole("query", query)
    row += n if row < 0 else 0
    if not 0 <= row < n:
        raise ValueError(f"query is {query}, expected a position in [-{n}, {n})")
    start = interval(nonnegative("distance", distance))
    changes, scale = _changes(layers, masks, n, start, saturating)
    others, own = (interval(float(changes[at])) * scale for at in (row, n))
    stated = "Theorem C for masked attention", (DIFFER, CONSTANTS, MASKED)
    return LayerInfluence.corrected(len(layers), others, own, *stated)


def _changes(
    layers: Sequence[LayerConstants],
    masks: Sequence[str],
    length: int,
    distance: Interval,
    saturating: bool,
) -> tuple[ByRow, Interval]:
    """Upper bounds on changes of the n rows j != i, then of row i; the unit they are in."""
    if distance.b == np.inf or any(_is_unbounded(layer) for layer in layers):
        return np.full(length + 1, np.inf), interval(1)
    changes, scale = np.zeros(length + 1), distance
    changes[length] = 1.0
    for layer, mask in zip(layers, masks, strict=True):
        seen = visible_changes(mask, changes[:length] > 0)
        changes, scale = _layer(layer, seen, changes, scale, saturating)
    return changes, scale


def _is_unbounded(layer: LayerConstants) -> bool:
    """True if a constant of the layer exceeds the floats, so that nothing is known."""
    norm = interval(layer.norm)
    numbers = [norm, interval(layer.skip_gain), interval(layer.input_gain)]
    for head in layer.heads:
        numbers += [interval(head.gain), head.score.half_oscillation(norm)]
        numbers += [head.score.query_slope(norm), head.score.key_slope(norm)]
    return any(x.b == np.inf for x in numbers)


# Floats carry r in relative terms (largest about 1), an interval carries the scale, so
# that nothing overflows. A layer with H heads rounds a row's value at most H + 5 times
# outside the means (per head two products, their sum, the gain and the running sum; the
# skip term); the results are raised by twice H + 8 unit roundoffs, and by the smallest
# normal number against underflow. A row that no non-zero coefficient reaches is zero, as
# in every other form, not that number.
def _layer(
    layer: LayerConstants,
    seen: tuple[Int[np.ndarray, "counted"], Int[np.ndarray, "counted"]],
    changes: ByRow,
    scale: Interval,
    saturating: bool,
) -> tuple[ByRow, Interval]:
    norm = interval(layer.norm)
    entering, unit = changes, interval(layer.input_gain) * scale
    if saturating:
        entering, unit = _rescaled(_capped(entering, 2 * norm, unit), unit)
    falling = -np.sort(-entering)
    skip = interval(layer.skip_gain) * scale
    # Per head: gain, and the two coefficients of the term inside the cap.
    heads = []
    for head in layer.heads:
        of_mean = 1 + 2 * norm * head.score.key_slope(norm)
        of_query = norm * head.score.query_slope(norm)
        heads.append((head, interval(head.gain) * unit, of_mean, of_query))
    largest = maximum(skip, *(g * maximum(m, q) for _, g, m, q in heads))
    if largest.b == 0:
        return np.zeros_like(changes), interval(0)
    out = upper(skip / largest) * changes
    moved = (changes > 0) & (skip.b > 0)
    # Whether a row sees a changed row, and anything at all.
    reached, sees = (_per_row(counted) > 0 for counted in seen)
    for head, gain, of_mean, of_query in heads:
        if gain.b == 0:
            continue
        moved |= reached | ((entering > 0) & sees & (of_query.b > 0))
        inverse = lower(exp(-2 * head.score.half_oscillation(norm)))
        mean = _per_row(largest_weighted_mean(falling, *seen, inverse))
        inner = maximum(of_mean, of_query)
        term = upper(of_mean / inner) * mean
        term += upper(of_query / inner) * entering * sees
        if saturating:
            term = _capped(term, 2 * norm, unit * inner)
        out += upper(gain * inner / largest) * term
    raised = out * (1 + 2 * (len(heads) + 8) * UNIT_ROUNDOFF) + _SMALLEST_NORMAL
    out = np.where(moved, raised, 0.0)
    if saturating:
        out = _capped(out, interval(layer.output_cap), largest)
    return _rescaled(out, largest)


def _capped(values: ByRow, cap: Interval, unit: Interval) -> ByRow:
    # A unit of zero makes the quotient, rounded up, infinite: no cap is needed.
    return np.minimum(values, upper(cap / unit))


def _rescaled(values: ByRow, unit: Interval) -> tuple[ByRow, Interval]:
    """`values` and `unit` rescaled by 2^k: the largest value is in [1/2, 1), or 0."""
    exponent = int(np.frexp(np.max(values))[1])
    return np.ldexp(values, -exponent), unit * interval(2) ** exponent


FORM = "causal closed form"
HYPOTHESES = (DIFFER, CONSTANTS, "causal softmax attention in every layer")


def scaled_causal_average_influence(length: int, num_layers: int) -> float:
    """Compute n times the influence of symbol 1 on row n of uniform causal averages.

    Exact: the float nearest to h_{L-1}(1, 1/2, …, 1/n), summed with 50 digits; h_k is
    the complete homogeneous polynomial of degree k.

    Args:
        length: n >= 1.
        num_layers: L >= 1.

    Returns:
        The scaled influence.

    Raises:
        ValueError: A number is out of its range.

    Source:
        A counterexample to Hahn 2020, Lemma 5, read for masked attention:
        docs/theory/lemma5.md, section 4.

    >>> round(scaled_causal_average_influence(64, 2), 4)
    4.7439
    """
    n = whole("length", length, 1)
    context: Any = MPContext()
    context.dps = 50
    # degrees[k] = h_k of the reciprocals so far; each new variable x enters as
    # h_k += x h_{k-1}, in rising order of k.
    depth = whole("num_layers", num_layers, 1)
    degrees = [context.mpf(1)] + [context.mpf(0)] * (depth - 1)
    for w in range(1, n + 1):
        for k in range(1, len(degrees)):
            degrees[k] += degrees[k - 1] / w
    return float(degrees[-1])


def causal_bound(
    layers: Sequence[LayerConstants], length: int, position: int, distance: float
) -> LayerInfluence:
    """Bound the influence of symbol i on the last row under a causal mask.

    (D/n) b E Σ_{t<L} (a + b E ln(n/i))^{L-1-t} (a + b)^t, i and n counted from 1; a layer
    multiplies a row's own change by at most a, the mean change it sees by b; E is max e^{2A}.

    Args:
        layers: Constants of layers 1 … L, all with the mask "future".
        length: n >= 2.
        position: i - 1, the changed position counted from 0, below n - 1.
        distance: D, between the two embeddings at i.

    Returns:
        Upper bounds on the change of the last row and of row i.

    Raises:
        ValueError: A number is out of its range, or there is no layer.

    Source:
        Hahn 2020, Lemma 5, corrected for masked attention: docs/theory/lemma5.md,
        section 4.
    """
    n = whole("length", length, 2)
    i = whole("position", position, 0) + 1
    if i >= n:
        raise ValueError(f"position is {position}, expected it in [0, {n - 1})")
    d = interval(nonnegative("distance", distance))
    layers = several("layers", layers, LayerConstants, least=1)
    a, b, ratio = interval(0), interval(0), interval(1)
    for layer in layers:
        norm, unit = interval(layer.norm), interval(layer.input_gain)
        of_row, of_mean = interval(layer.skip_gain), interval(0)
        for head in layer.heads:
            gain = interval(head.gain) * unit
            of_row += gain * norm * head.score.query_slope(norm)
            of_mean += gain * (1 + 2 * norm * head.score.key_slope(norm))
            ratio = maximum(ratio, exp(2 * head.score.half_oscillation(norm)))
        a, b = maximum(a, of_row), maximum(b, of_mean)
    growth = a + b * ratio * log(interval(n) / i)
    depth = len(layers)
    total = sum(growth ** (depth - 1 - t) * (a + b) ** t for t in range(depth))
    changes = d / n * b * ratio * total, (a + b) ** depth * d
    return LayerInfluence.corrected(depth, *changes, FORM, HYPOTHESES)
