"""Theorem C: the corrected Lemma 5 as a recursion over layers, and closed forms C1, C2.

The symbol at position i of n is exchanged, D the distance of the two embeddings; κ bounds
the change of every position but i and σ that of i; attention has no mask. A bounds half the
difference of a row's logits, F what attention reads. docs/theory/lemma5.md, sections 1 and
2, has the proofs. The linear recursion is proportional to D: it bounds the Lipschitz
constant. The saturating one also knows that logits, averages and outputs have a bounded
range; it is never larger.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bounds.lemma5.closed_form.layer_constants import LayerConstants, Score
from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, maximum, minimum, upper
from bounds.numbers.statements import (
    check_fields,
    corrected_bound,
    instance,
    nonnegative,
    others,
    own,
    several,
    upper_bound,
    whole,
)


def weight_bound(half_oscillation: Interval, visible: int) -> Interval:
    """Upper bound 1/(1 + (m - 1) e^{-2A}) on weights; A `half_oscillation`, m `visible`."""
    return 1 / (1 + (visible - 1) * exp(-2 * half_oscillation))


def largest_weight(half_oscillation: float, visible: int) -> Bound:
    """Bound every weight of a softmax over m logits that differ by at most 2A.

    α <= 1/(1 + (m - 1) e^{-2A}) <= e^{2A}/m, with equality on the left when one logit
    is 2A above all the others. Proof: α_w = 1/Σ_u e^{s_u - s_w}, one term is 1, the
    others are at least e^{-2A}; and (m - 1) e^{-2A} + 1 >= m e^{-2A}.

    Args:
        half_oscillation: A in nats.
        visible: m, the number of positions the row sees.

    Returns:
        An upper `Bound` on the weight.

    Raises:
        ValueError: A is negative or NaN, or m is below 1.

    Source:
        Hahn 2020, proof of Lemma 5, there relaxed to e^{2A}/(n - 1).

    >>> print(largest_weight(0.0, 4))
    largest attention weight of a row at most 0.25001
    """
    a = interval(nonnegative("half_oscillation", half_oscillation))
    return upper_bound(
        weight_bound(a, whole("visible", visible, 1)),
        "largest attention weight of a row",
        ("the logits of the row differ by at most 2A",),
        "Hahn 2020, proof of Lemma 5",
    )


def change_bound(
    score: Score,
    norm: Interval,
    length: int,
    changes: Sequence[Interval],
    saturating: bool,
) -> Interval:
    """Upper bound (Corollary B) on the change of a head's average of attention inputs."""
    # docs/theory/lemma5.md, section 1. `changes` bound those of the activations that it
    # reads: the query's, every key's but i, and key i's.
    query, other, own = changes
    weight = weight_bound(score.half_oscillation(norm), length)
    logit_other = score.query_slope(norm) * query + score.key_slope(norm) * other
    logit_own = score.query_slope(norm) * query + score.key_slope(norm) * own
    if saturating:
        # Both rows of logits stay within ± the magnitude.
        most = 2 * score.magnitude(norm)
        logit_other, logit_own = minimum(logit_other, most), minimum(logit_own, most)
    change = other + weight * (own - other)
    change += norm * (logit_other + 2 * weight * logit_own)
    return minimum(change, 2 * norm) if saturating else change


@dataclasses.dataclass(frozen=True)
class LayerInfluence:
    """Bounds on the changes after some layer k when the symbol at position i is exchanged.

    Attributes:
        others: Upper bound at every position but i.
        own: Upper bound at position i.
    """

    others: Bound
    own: Bound

    @classmethod
    def corrected(
        cls, layer: int, others_change: Interval, own_change: Interval, *stated: Any
    ) -> "LayerInfluence":
        """Upper bounds after a layer, by the corrected lemma; `stated`: form, hypotheses."""
        changes = (others_change, others(layer)), (own_change, own(layer))
        return cls(*(corrected_bound(*change, *stated) for change in changes))


def influence_recursion(
    layers: Sequence[LayerConstants],
    length: int,
    distance: float,
    *,
    saturating: bool = True,
) -> tuple[LayerInfluence, ...]:
    """Bound the influence of one symbol after each layer, attention without a mask.

    Args:
        layers: Constants of layers 1 … L, at the temperature of this length.
        length: n >= 2, every position counted (a query token too).
        distance: D, the largest distance of two embeddings that are exchanged.
        saturating: Whether to use that logits, averages and outputs have a bounded
            range. Without, the bounds are exactly proportional to D.

    Returns:
        Upper bounds after each layer; the last is for the final activations.

    Raises:
        ValueError: n is below 2, D is negative or NaN, or there is no layer.

    Source:
        Hahn 2020, Lemma 5, corrected.
    """
    length = whole("length", length, 2)
    start = interval(nonnegative("distance", distance))
    layers = several("layers", layers, LayerConstants, least=1)
    saturates = instance("saturating", saturating, bool)
    form = "Theorem C, " + ("saturating" if saturates else "linear")
    changes, found = (interval(0), start), []  # κ and σ
    for k, layer in enumerate(layers, start=1):
        norm, after = interval(layer.norm), []
        moved = [interval(layer.input_gain) * x for x in changes]
        # Any two rows that attention reads are at most 2F apart.
        keys = [minimum(x, 2 * norm) if saturates else x for x in moved]
        # A row's own change enters by the skip and by its query.
        for here, query in zip(changes, keys, strict=True):
            out = interval(layer.skip_gain) * here
            for head in layer.heads:
                entering = query, *keys
                change = change_bound(head.score, norm, length, entering, saturates)
                out += interval(head.gain) * change
            after.append(minimum(out, interval(layer.output_cap)) if saturates else out)
        changes = tuple(after)
        found.append(LayerInfluence.corrected(k, *changes, form))
    return tuple(found)


# For a dot product A = mu F² + c F; for additive scores A = F max(m1, m2), half of Hahn's
# 2 F C_att. L_f has |dy'| <= L_f (|dy| + Σ_h |da_h|).
@dataclasses.dataclass(frozen=True)
class UniformConstants:
    """Constants shared by all layers, of which closed forms C1 and C2 are computed.

    Attributes:
        half_oscillation: A, nats.
        output_lipschitz: L_f, per unit of change of the activation and of each average.
        num_heads: H, the largest number of heads of a layer.
        num_layers: L.

    Raises:
        ValueError: A number is out of its range.
    """

    half_oscillation: float
    output_lipschitz: float
    num_heads: int
    num_layers: int

    def __post_init__(self) -> None:
        check_fields(self, nonnegative, "half_oscillation", "output_lipschitz")
        at_least_one = lambda name, value: whole(name, value, 1)
        check_fields(self, at_least_one, "num_heads", "num_layers")


def uniform_constants(layers: Sequence[LayerConstants]) -> UniformConstants:
    """Compute the least constants that hold for every layer, for C1 and C2.

    Args:
        layers: Constants of layers 1 … L.

    Returns:
        Maxima over the layers, rounded up.

    Raises:
        ValueError: There is no layer.

    Source:
        Hahn 2020, proof of Lemma 5 (A, C_att, L_fact), made explicit.
    """
    layers = several("layers", layers, LayerConstants, least=1)
    a = lipschitz = interval(0)
    for layer in layers:
        norm = interval(layer.norm)
        lipschitz = maximum(lipschitz, interval(layer.skip_gain))
        for head in layer.heads:
            slopes = head.score.query_slope(norm), head.score.key_slope(norm)
            a = maximum(a, norm * maximum(*slopes))
            # Averages are of the attention's input, which may change faster than y.
            gain = interval(head.gain) * interval(layer.input_gain)
            lipschitz = maximum(lipschitz, gain)
    return UniformConstants(
        upper(a), upper(lipschitz), max(len(x.heads) for x in layers), len(layers)
    )


def printed_shape_bound(
    constants: UniformConstants, length: int, distance: float
) -> LayerInfluence:
    """Bound the influence of one symbol on the final activations by C2.

    (H Γ)^L D/n at j != i and (H Γ)^L D at i, Γ = 3 L_f (1 + A) e^{2A}; attention
    without a mask.

    Args:
        constants: A, L_f, H, L.
        length: n >= 2.
        distance: D.

    Returns:
        Upper bounds after layer L.

    Raises:
        ValueError: n is below 2, or D is negative or NaN.

    Source:
        Hahn 2020, Lemma 5, corrected: docs/theory/lemma5.md, section 2.
    """
    n, d, a, lipschitz = _expected(constants, length, distance)
    gamma, depth = 3 * lipschitz * (1 + a) * exp(2 * a), constants.num_layers
    sigma = (constants.num_heads * gamma) ** depth * d
    return LayerInfluence.corrected(depth, sigma / n, sigma, "closed form C2")


def single_exponential_bound(
    constants: UniformConstants, length: int, distance: float
) -> LayerInfluence:
    """Bound the influence of one symbol on the final activations by C1.

    (e^{2A}/n) L L_f H (1 + 4A) [L_f (1 + H (1 + 6A))]^{L-1} D at j != i, and
    [L_f (1 + H (1 + 6A))]^L D at i; attention without a mask.

    Args:
        constants: A, L_f, H, L.
        length: n >= 2.
        distance: D.

    Returns:
        Upper bounds after layer L.

    Raises:
        ValueError: n is below 2, or D is negative or NaN.

    Source:
        Hahn 2020, Lemma 5, corrected: docs/theory/lemma5.md, section 2.
    """
    n, d, a, lipschitz = _expected(constants, length, distance)
    heads, depth = constants.num_heads, constants.num_layers
    growth = lipschitz * (1 + heads * (1 + 6 * a))
    source = lipschitz * heads * (1 + 4 * a)
    kappa = exp(2 * a) / n * depth * source * growth ** (depth - 1) * d
    sigma = growth**depth * d
    return LayerInfluence.corrected(depth, kappa, sigma, "closed form C1")


def _expected(
    constants: UniformConstants, length: int, distance: float
) -> tuple[int, Interval, Interval, Interval]:
    """Length n, and D, A and L_f as intervals, from checked arguments."""
    n, d = whole("length", length, 2), interval(nonnegative("distance", distance))
    instance("constants", constants, UniformConstants)
    numbers = constants.half_oscillation, constants.output_lipschitz
    return n, d, *map(interval, numbers)
