"""Closed forms C1 and C2, from constants that all layers and heads share."""

import dataclasses
from collections.abc import Sequence

from bounds.lemma5.closed_form.layer_constants import LayerConstants
from bounds.lemma5.closed_form.recursion import LayerInfluence
from bounds.numbers.interval import exp, interval, maximum, upper
from bounds.numbers.statements import (
    corrected_bound,
    instance,
    nonnegative,
    others,
    own,
    several,
    whole,
)

C2 = "closed form C2"
C1 = "closed form C1"


# Temperature: it divides the logits, and with them mu, c, m1, m2 and A, nothing else.
#
# `LayerConstants.at_temperature` does that. A fixed temperature only changes the
# constants of Lemma 5. One that falls with the length changes the conclusion: with 1/τ =
# β ln n and A the half oscillation at τ = 1, the largest weight grows like e^{2Aβ ln
# n}/n, and C1 is n^{2Aβ - 1} times a polynomial in ln n. It vanishes if and only if 2Aβ <
# 1: attention with length-scaled logits escapes the lemma, as it should.
def length_exponent(half_oscillation: float, log_scale: float) -> float:
    """Compute the exponent of n in C1 when 1/τ = β ln n.

    2 A β - 1, up to factors polynomial in ln n; below zero the bound vanishes.

    Args:
        half_oscillation: A at temperature 1, nats.
        log_scale: β >= 0; the temperature is 1/(β ln n).

    Returns:
        The exponent, rounded up.

    Raises:
        ValueError: A number is negative or NaN.

    Source:
        Hahn 2020, Lemma 5, corrected: closed form C1.

    >>> length_exponent(0.25, 1.0)
    -0.5
    """
    a = interval(nonnegative("half_oscillation", half_oscillation))
    return upper(2 * a * interval(nonnegative("log_scale", log_scale)) - 1)


# The four numbers of the closed forms, the same for every layer and head.
#
#     A >= F_k max(query slope, key slope)   for every layer and head,
#     L_f with |dy'| <= L_f (|dy| + Σ_h |da_h|),
#
# H heads and L layers. A is then at least half the oscillation of every row of logits,
# and F d_o <= A (q + κ), F d_i <= A (q + σ): all that the closed forms use. For a dot
# product A = mu F² + c F; for additive scores A = F max(m1, m2), half of Hahn's 2 F
# C_att.
@dataclasses.dataclass(frozen=True)
class UniformConstants:
    """Constants shared by all layers.

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
        for name in ("half_oscillation", "output_lipschitz"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        for name in ("num_heads", "num_layers"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 1))


def uniform_constants(layers: Sequence[LayerConstants]) -> UniformConstants:
    """The least uniform constants that cover every layer.

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


# Closed form C2: the corrected bound in the shape that Hahn 2020 prints.
#
#     |dy_j^(k)| <= (H Γ)^k D / n   (j != i),     |dy_i^(k)| <= (H Γ)^k D,
#     Γ = 3 L_f (1 + A) e^{2A},     n >= 2.
#
# Proof by induction over the linear recursion. Write s = (H Γ)^{k-1} D, so κ <= s/n and
# σ <= s. Other queries: B <= (1 + 2A) κ + ᾱσ + 2ᾱA (κ + σ), and with ᾱ <= e^{2A}/n and
# κ <= s/2, κ' <= (s/n) L_f H [2 + 2A + e^{2A}(1 + 3A)] <= (s/n) 3 L_f H (1 + A) e^{2A},
# because 1 + A <= e^{2A}. The query i: B <= s + 1.5 A s + 4 A s, so
# σ' <= s L_f H (2 + 5.5 A), and 3 (1 + A) e^{2A} >= 3 (1 + A)(1 + 2A) is more.
#
# The bound at i carries H^k; without it, as printed, it is false.
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
        ValueError: n is below 2 or D negative.

    Source:
        Hahn 2020, Lemma 5, corrected.
    """
    n = whole("length", length, 2)
    d = interval(nonnegative("distance", distance))
    a = interval(instance("constants", constants, UniformConstants).half_oscillation)
    gamma = 3 * interval(constants.output_lipschitz) * (1 + a) * exp(2 * a)
    sigma = (constants.num_heads * gamma) ** constants.num_layers * d
    return LayerInfluence(
        corrected_bound(sigma / n, others(constants.num_layers), C2),
        corrected_bound(sigma, own(constants.num_layers), C2),
    )


# Closed form C1: one factor e^{2A}, whatever the depth.
#
#     |dy_j^(L)| <= (e^{2A}/n) L L_f H (1 + 4A) G^{L-1} D   (j != i),
#     |dy_i^(L)| <= G^L D,                                  G = L_f (1 + H (1 + 6A)).
#
# Proof, from the linear recursion with κ <= σ and ᾱ <= min(1, e^{2A}/n):
# F d_o <= A (q + κ) and F d_i <= A (q + σ) give, for the query i (q = σ),
# B <= σ + 2Aσ + 4Aσ, hence σ' <= G σ; and for another query (q = κ),
# B <= (1 + 2A) κ + ᾱ (1 + 4A) σ, hence κ' <= g κ + L_f H ᾱ (1 + 4A) σ with g <= G.
# Unrolled, κ_L is a sum of L terms, each at most L_f H ᾱ (1 + 4A) G^{L-1} D.
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
        ValueError: n is below 2 or D negative.

    Source:
        Hahn 2020, Lemma 5, corrected.
    """
    n = whole("length", length, 2)
    d = interval(nonnegative("distance", distance))
    a = interval(instance("constants", constants, UniformConstants).half_oscillation)
    lipschitz = interval(constants.output_lipschitz)
    heads, depth = constants.num_heads, constants.num_layers
    growth = lipschitz * (1 + heads * (1 + 6 * a))
    source = lipschitz * heads * (1 + 4 * a)
    kappa = exp(2 * a) / n * depth * source * growth ** (depth - 1) * d
    return LayerInfluence(
        corrected_bound(kappa, others(depth), C1),
        corrected_bound(growth**depth * d, own(depth), C1),
    )
