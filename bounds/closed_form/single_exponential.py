"""Closed form C1: one factor e^{2A}, whatever the depth.

    |dy_j^(L)| <= (e^{2A}/n) L L_f H (1 + 4A) G^{L-1} D   (j != i),
    |dy_i^(L)| <= G^L D,                                  G = L_f (1 + H (1 + 6A)).

Proof, from the linear recursion with κ <= σ and ᾱ <= min(1, e^{2A}/n):
F d_o <= A (q + κ) and F d_i <= A (q + σ) give, for the query i (q = σ),
B <= σ + 2Aσ + 4Aσ, hence σ' <= G σ; and for another query (q = κ),
B <= (1 + 2A) κ + ᾱ (1 + 4A) σ, hence κ' <= g κ + L_f H ᾱ (1 + 4A) σ with g <= G.
Unrolled, κ_L is a sum of L terms, each at most L_f H ᾱ (1 + 4A) G^{L-1} D.

Closed form C2: the corrected bound in the shape that Hahn 2020 prints.

    |dy_j^(k)| <= (H Γ)^k D / n   (j != i),     |dy_i^(k)| <= (H Γ)^k D,
    Γ = 3 L_f (1 + A) e^{2A},     n >= 2.

Proof by induction over the linear recursion. Write s = (H Γ)^{k-1} D, so κ <= s/n and
σ <= s. Other queries: B <= (1 + 2A) κ + ᾱσ + 2ᾱA (κ + σ), and with ᾱ <= e^{2A}/n and
κ <= s/2, κ' <= (s/n) L_f H [2 + 2A + e^{2A}(1 + 3A)] <= (s/n) 3 L_f H (1 + A) e^{2A},
because 1 + A <= e^{2A}. The query i: B <= s + 1.5 A s + 4 A s, so
σ' <= s L_f H (2 + 5.5 A), and 3 (1 + A) e^{2A} >= 3 (1 + A)(1 + 2A) is more.

The bound at i carries H^k; without it, as printed, it is false.
"""

from bounds.closed_form.domain import nonnegative, whole
from bounds.closed_form.recursion import LayerInfluence
from bounds.closed_form.statements import corrected_bound, others, own
from bounds.closed_form.uniform_constants import UniformConstants
from bounds.interval import exp, interval

C2 = "closed form C2"
C1 = "closed form C1"


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
    a = interval(constants.half_oscillation)
    gamma = 3 * interval(constants.output_lipschitz) * (1 + a) * exp(2 * a)
    sigma = (constants.num_heads * gamma) ** constants.num_layers * d
    return LayerInfluence(
        corrected_bound(sigma / n, others(constants.num_layers), C2),
        corrected_bound(sigma, own(constants.num_layers), C2),
    )


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
    a = interval(constants.half_oscillation)
    lipschitz = interval(constants.output_lipschitz)
    heads, depth = constants.num_heads, constants.num_layers
    growth = lipschitz * (1 + heads * (1 + 6 * a))
    source = lipschitz * heads * (1 + 4 * a)
    kappa = exp(2 * a) / n * depth * source * growth ** (depth - 1) * d
    return LayerInfluence(
        corrected_bound(kappa, others(depth), C1),
        corrected_bound(growth**depth * d, own(depth), C1),
    )
