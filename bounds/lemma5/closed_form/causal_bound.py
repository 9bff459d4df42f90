"""Causal attention in closed form: (ln(j/i))^{L-1}/j instead of 1/n."""

from collections.abc import Sequence
from typing import Any

from mpmath import MPContext

from bounds.lemma5.closed_form.layer_constants import LayerConstants
from bounds.lemma5.closed_form.recursion import LayerInfluence
from bounds.numbers.interval import Interval, exp, interval, log, maximum
from bounds.numbers.statements import (
    CONSTANTS,
    DIFFER,
    corrected_bound,
    nonnegative,
    others,
    own,
    several,
    whole,
)

FORM = "causal closed form"
HYPOTHESES = (DIFFER, CONSTANTS, "causal softmax attention in every layer")


# Uniform causal averaging: the model that shows why 1/n becomes (log n)^{L-1}/n.
#
# Every row averages the activations of the rows up to its own, a_j = (1/j) Σ_{w<=j} y_w,
# L layers deep, without a skip. n times the influence of symbol 1 on row n is exactly the
# complete homogeneous symmetric polynomial of degree L - 1,
#
#     h_{L-1}(1, 1/2, …, 1/n),
#
# so 1, then the harmonic number H_n, then (H_n² + H_n^(2))/2, in general of order
# (ln n)^{L-1}/(L-1)!. Proof: r^(1)_w = 1/w, and if w r^(k)_w = h_{k-1}(1, …, 1/w) then
# j r^(k+1)_j = Σ_{w<=j} (1/w) h_{k-1}(1, …, 1/w) = h_k(1, …, 1/j), sorting the monomials
# by the last variable in them.
def scaled_causal_average_influence(length: int, num_layers: int) -> float:
    """Compute n times the influence of symbol 1 on row n, averaging uniformly.

    Exact: the float nearest to h_{L-1}(1, 1/2, …, 1/n), summed with 50 digits.

    Args:
        length: n >= 1.
        num_layers: L >= 1.

    Returns:
        The scaled influence.

    Raises:
        ValueError: A number is out of its range.

    Source:
        A counterexample to Hahn 2020, Lemma 5, read for masked attention.

    >>> round(scaled_causal_average_influence(64, 2), 4)
    4.7439
    """
    n = whole("length", length, 1)
    context: Any = MPContext()
    context.dps = 50
    # degrees[k] = h_k of the reciprocals so far; each new variable x enters as
    # h_k += x h_{k-1}, in rising order of k.
    degrees = [context.mpf(1)] + [context.mpf(0)] * (
        whole("num_layers", num_layers, 1) - 1
    )
    for w in range(1, n + 1):
        for k in range(1, len(degrees)):
            degrees[k] += degrees[k - 1] / w
    return float(degrees[-1])


# Count positions from 1. With E = e^{2A}, a = skip + Σ gain F (query slope) and
# b = Σ gain (1 + 2F (key slope)), maxima over the layers, and λ = ln(n/i),
#
#     |dy_n^(L)| <= (D/n) b E Σ_{t=0}^{L-1} (a + b E λ)^{L-1-t} (a + b)^t     (i < n),
#     |dy_i^(L)| <= (a + b)^L D.
#
# Proof, from the linear recursion for masked attention, r' <= a r_j + b W_j(r). Rows
# before i do not change. W is at most the largest visible change, so s_k = (a + b)^k D
# bounds row i. A weight in row j is at most E/(E + j - 1) <= E/j, so W_j <= (E/j)
# Σ_{i<=w<=j} r_w. If r_w <= D Q/w for i < w <= n, then, with Σ_{i<w<=j} 1/w <= ln(j/i) <=
# λ, r'_j <= (D/j) [(a + b E λ) Q + b E (a + b)^k]; unroll from Q = 0. QED
#
# For i = n - 1 there is no logarithm (λ <= 1/(n - 1)); for i = 1 the growth (ln n)^{L-1}
# is real, see `causal_average`. The mirrored statement holds for the mask "past".
def causal_bound(
    layers: Sequence[LayerConstants], length: int, position: int, distance: float
) -> LayerInfluence:
    """Bound the influence of symbol i on the last row under a causal mask.

    (D/n) b E Σ_t (a + b E ln(n/i))^{L-1-t} (a + b)^t, i and n counted from 1.

    Args:
        layers: Constants of layers 1 … L, all with the mask "future".
        length: n >= 2.
        position: i - 1, the changed position counted from 0, below n - 1.
        distance: D.

    Returns:
        Upper bounds on the change of the last row and of row i.

    Raises:
        ValueError: A number is out of its range, or there is no layer.

    Source:
        Hahn 2020, Lemma 5, corrected for masked attention.
    """
    n = whole("length", length, 2)
    i = whole("position", position, 0) + 1
    if i >= n:
        raise ValueError(f"position is {position}, expected it in [0, {n - 1})")
    d = interval(nonnegative("distance", distance))
    layers = several("layers", layers, LayerConstants, least=1)
    a, b, ratio = _coefficients(layers)
    growth = a + b * ratio * log(interval(n) / i)
    depth = len(layers)
    total = interval(0)
    for t in range(depth):
        total += growth ** (depth - 1 - t) * (a + b) ** t
    stated = FORM, HYPOTHESES
    return LayerInfluence(
        corrected_bound(d / n * b * ratio * total, others(depth), *stated),
        corrected_bound((a + b) ** depth * d, own(depth), *stated),
    )


def _coefficients(
    layers: Sequence[LayerConstants],
) -> tuple[Interval, Interval, Interval]:
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
    return a, b, ratio
