"""Theorem C: the corrected Lemma 5 as a recursion over layers, without a mask.

Let κ bound the change of every position but i and σ that of i; at the embeddings κ = 0
and σ = D. With B_h(q) the bound of `head_change` for a query that moves by q, a layer
gives

    κ' = skip κ + Σ_h gain_h B_h(κ),     σ' = skip σ + Σ_h gain_h B_h(σ),

and the statement holds for all n >= 2 and all pairs of inputs. Proof: induction; B
grows with the query's change, so κ <= σ persists. For fixed constants κ is O(1/n),
since its only source is ᾱ (σ - κ + 2F d_i) and ᾱ <= e^{2A}/n.

The linear recursion is proportional to D: it bounds the Lipschitz constant. The
saturating one also knows that logits, averages and outputs have a bounded range; it is
never larger.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from bounds.lemma5.closed_form.layer_constants import LayerConstants
from bounds.lemma5.closed_form.scores import Additive, DotProduct, Score
from bounds.numbers.bound import Bound, Sense
from bounds.numbers.interval import Interval, exp, interval, log_upper, minimum
from bounds.numbers.statements import (
    UNMASKED,
    corrected_bound,
    instance,
    nonnegative,
    others,
    own,
    several,
    whole,
)


def weight_bound(half_oscillation: Interval, visible: int) -> Interval:
    """1/(1 + (m - 1) e^{-2A}) on intervals; see `largest_weight`."""
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
    value = weight_bound(a, whole("visible", visible, 1))
    return Bound(
        log_value=log_upper(value),
        sense=Sense.UPPER,
        quantity="largest attention weight of a row",
        hypotheses=("the logits of the row differ by at most 2A",),
        source="Hahn 2020, proof of Lemma 5",
    )


@dataclasses.dataclass(frozen=True)
class Changes:
    """Bounds on the changes of activations that one head reads."""

    query: Interval  # of the query's
    other: Interval  # of every key's but i
    own: Interval  # of key i's


# How far one head's average can move: the step the printed proof gets wrong.
#
# Lemma A. For a fixed query let u_w, s_w be keys' activations and logits before, u'_w,
# s'_w after, du_w = u'_w - u_w, δ_w = s'_w - s_w. Interpolate both linearly, s(t) = s +
# tδ, u(t) = u + t du, α(t) = softmax s(t), a(t) = Σ α_w(t) u_w(t). Differentiating,
#
#     a' - a = ∫_0^1 [ Σ_w α_w(t) du_w + Cov_{α(t)}(δ, u(t)) ] dt.
#
# The printed proof keeps the first term only, with the weights of one endpoint. On the
# path |u_w(t)| <= F and s(t) oscillates by at most 2A, because both hold at the ends.
#
# Corollary B bounds the integrand, without a mask, when |du_w| <= κ and |δ_w| <= d_o for
# w != i, |du_i| <= σ and |δ_i| <= d_i, κ <= σ, and no weight exceeds ᾱ:
#
#     |a' - a| <= κ + ᾱ (σ - κ) + F (d_o + 2 ᾱ d_i),     and always <= 2F.
#
# First term: the weight on i is at most ᾱ. Second: split δ = δ 1_{w≠i} + δ_i 1_i; by
# Cauchy and Schwarz |Cov(f, u)| <= sd(f) sup_{|v|=1} sd(v·u) <= d_o F for the first part,
# and the second is |α_i δ_i (u_i - a)| <= ᾱ d_i 2F. (Cauchy-Schwarz on i too would only
# give ᾱ^{1/2}: hence the split.)
def change_bound(
    score: Score, norm: Interval, length: int, changes: Changes, saturating: bool
) -> Interval:
    """Corollary B on intervals; see `head_change`."""
    query, other, own = changes.query, changes.other, changes.own
    weight = weight_bound(score.half_oscillation(norm), length)
    logit_other = score.query_slope(norm) * query + score.key_slope(norm) * other
    logit_own = score.query_slope(norm) * query + score.key_slope(norm) * own
    if saturating:
        # Both rows of logits stay within ± the magnitude.
        most = 2 * score.magnitude(norm)
        logit_other, logit_own = minimum(logit_other, most), minimum(logit_own, most)
    change = (
        other + weight * (own - other) + norm * (logit_other + 2 * weight * logit_own)
    )
    return minimum(change, 2 * norm) if saturating else change


def head_change(
    score: Score,
    norm: float,
    length: int,
    query: float,
    other: float,
    own: float,
    *,
    saturating: bool = True,
) -> Bound:
    """Bound the change of one head's un-projected average, attention without a mask.

    |a' - a| <= κ + ᾱ (σ - κ) + F (d_o + 2 ᾱ d_i), with d_o = (query slope) q + (key
    slope) κ, d_i the same with σ, ᾱ = 1/(1 + (n - 1) e^{-2A}).

    Args:
        score: Norms of the logits.
        norm: F.
        length: n >= 2.
        query: q, bound on the change of the query's activation: κ for a position other
            than i, σ for i.
        other: κ, bound on the change of every key but i.
        own: σ >= κ, bound on the change of key i.
        saturating: Also use that logits move by at most twice their magnitude and that
            averages differ by at most 2F. Without, the bound is linear in the changes.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is negative or NaN, n is below 2, or σ is below κ.

    Source:
        Hahn 2020, proof of Lemma 5, corrected.
    """
    sigma, kappa = nonnegative("own", own), nonnegative("other", other)
    if sigma < kappa:
        raise ValueError(f"own is {own}, expected at least other = {other}")
    value = change_bound(
        instance("score", score, DotProduct, Additive),
        interval(nonnegative("norm", norm)),
        whole("length", length, 2),
        Changes(
            interval(nonnegative("query", query)), interval(kappa), interval(sigma)
        ),
        instance("saturating", saturating, bool),
    )
    return Bound(
        log_value=log_upper(value),
        sense=Sense.UPPER,
        quantity="|a - a'|, a the average of one head",
        hypotheses=(
            UNMASKED,
            "activations at most F, their changes at most κ, at position i at most σ",
        ),
        source="Hahn 2020, proof of Lemma 5, corrected: Corollary B",
    )


@dataclasses.dataclass(frozen=True)
class LayerInfluence:
    """Bounds on the changes after one layer.

    Attributes:
        others: Upper bound at every position but i.
        own: Upper bound at position i.
    """

    others: Bound
    own: Bound


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
        Upper bounds after each layer; the last element speaks of the final activations.

    Raises:
        ValueError: n is below 2, D is negative, or there is no layer.

    Source:
        Hahn 2020, Lemma 5, corrected.
    """
    length = whole("length", length, 2)
    start = interval(nonnegative("distance", distance))
    layers = several("layers", layers, LayerConstants, least=1)
    saturates = instance("saturating", saturating, bool)
    form = "Theorem C, " + ("saturating" if saturates else "linear")
    return tuple(
        LayerInfluence(
            corrected_bound(kappa, others(k), form),
            corrected_bound(sigma, own(k), form),
        )
        for k, (kappa, sigma) in enumerate(
            _steps(layers, length, start, saturating), start=1
        )
    )


def _steps(
    layers: Sequence[LayerConstants], length: int, distance: Interval, saturating: bool
) -> Iterator[tuple[Interval, Interval]]:
    kappa, sigma = interval(0), distance
    for layer in layers:
        kappa, sigma = (
            _output_change(layer, length, x, kappa, sigma, saturating)
            for x in (kappa, sigma)
        )
        yield kappa, sigma


def _output_change(
    layer: LayerConstants,
    length: int,
    here: Interval,
    kappa: Interval,
    sigma: Interval,
    saturating: bool,
) -> Interval:
    """The change of the output at a position whose input changes by `here`."""
    norm = interval(layer.norm)
    entering = Changes(
        *(
            minimum(change, 2 * norm) if saturating else change
            for change in (interval(layer.input_gain) * x for x in (here, kappa, sigma))
        )
    )
    out = interval(layer.skip_gain) * here
    for head in layer.heads:
        change = change_bound(head.score, norm, length, entering, saturating)
        out += interval(head.gain) * change
    return minimum(out, interval(layer.output_cap)) if saturating else out
