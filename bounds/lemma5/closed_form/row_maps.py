"""Lipschitz constants and output norms of a layer's maps on single positions (rows)."""

import math
from collections.abc import Sequence

from bounds.numbers.bound import Bound
from bounds.numbers.interval import (
    exp,
    interval,
    log,
    maximum,
    minimum,
    sqrt,
    upper,
)
from bounds.numbers.statements import (
    nonnegative,
    nonnegatives,
    number,
    shown,
    upper_bound,
    whole,
)

_SOURCE = "Hahn 2020, Lemma 5, corrected: LayerNorm"


def growth_constant(embedding_norm: float, norms: Sequence[float]) -> float:
    """Compute the least C_fact >= 1 with F_k <= C_fact^k (|p| + |v|) for every layer.

    max(1, max_k (F_k/(|p| + |v|))^{1/k}).

    Args:
        embedding_norm: max_j |p_j| + max_σ |v_σ|.
        norms: F_1 … F_L, biases included.

    Returns:
        C_fact, rounded up.

    Raises:
        ValueError: A number is negative or NaN, or the embeddings vanish and a layer
            does not.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant C_fact), read so that it is true.
    """
    start = interval(nonnegative("embedding_norm", embedding_norm))
    growth = interval(1)
    for k, norm in enumerate(nonnegatives("norms", norms), start=1):
        # The k-th root of a ratio of at most 1 adds nothing to a growth of 1.
        if norm <= embedding_norm:
            continue
        if embedding_norm == 0:
            raise ValueError(
                f"embedding_norm is {embedding_norm} but layer {k} reaches {norm}, "
                "expected a number > 0: no growth constant covers biases where the "
                "embeddings vanish"
            )
        growth = maximum(growth, exp(log(interval(norm) / start) / k))
    return upper(growth)


# Lipschitz constant of the feed-forward block g(y) = y + W2 act(W1 y + b1) + b2.
#
# The derivative of the activation lies in [1 - λ, λ]: relu λ = 1; gelu λ = Φ(√2) + √2
# φ(√2), because gelu'(z) = Φ(z) + z φ(z), gelu'' = (2 - z²) φ vanishes at ±√2 only, and
# gelu'(z) + gelu'(-z) = 1. The Jacobian is I + W2 S W1 with S diagonal, and S = I/2 + (S
# - I/2), |S - I/2| <= λ - 1/2. A diagonal matrix commutes with a positive diagonal one,
# so |W2 S W1| = |W2 T^{-1} S T W1| <= |S| π for every T, with π = |W2 T^{-1}| |T W1|.
# Hence ℓ = min(1 + λ π, |I + W2 W1/2| + (λ - 1/2) π).
def feed_forward_lipschitz(product: float, half_norm: float, *, slope: float) -> Bound:
    """Bound the Lipschitz constant of the block, its residual included.

    min(1 + λ π, |I + W2 W1/2| + (λ - 1/2) π).

    Args:
        product: π = |W2 T^{-1}| |T W1| for any positive diagonal T, the smaller the
            better; T = I and T_u = √(|W2[:,u]|/|W1[u,:]|) are the usual ones.
        half_norm: |I + W2 W1/2|; infinite where it was not computed.
        slope: λ of the activation, at least 1/2.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is negative, NaN, or the slope is below 1/2.

    Source:
        Hahn 2020, Lemma 5 (the constant L_fact), made explicit.
    """
    steepest = interval(number(slope))
    if not steepest.a >= 0.5:
        raise ValueError(f"slope is {shown(slope)}, expected at least 1/2")
    pi = interval(nonnegative("product", product))
    half = interval(nonnegative("half_norm", half_norm))
    value = minimum(1 + steepest * pi, half + (steepest - interval(0.5)) * pi)
    return upper_bound(
        value,
        "Lipschitz constant of the feed-forward block",
        ("the activation's derivative lies in [1 - λ, λ]",),
        "Hahn 2020, Lemma 5, the constant L_fact",
    )


# LN(z) = γ ∘ Pz/√(|Pz|²/d + ε) + β, P the centring projection, d the width. With
# s = √(|w|²/d + ε) the map w -> w/s has Jacobian (I - w w^T/(d s²))/s, whose norm is at
# most 1/s. So the Lipschitz constant is at most max|γ|/√ε; and |w/s| <= √d whatever w is.
#
# With ε = 0 the map is discontinuous at Pz = 0: activations with almost equal entries are
# told apart however close they are. No Lipschitz constant exists, nothing in Lemma 5
# applies, and its conclusion can fail.
def layer_norm_lipschitz(scale: float, epsilon: float) -> Bound:
    """Bound the Lipschitz constant of a LayerNorm by max|γ|/√ε.

    Args:
        scale: max|γ|.
        epsilon: ε > 0.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: ε is zero, or a number is out of its range.

    Source:
        Hahn 2020, Lemma 5 is stated without LayerNorm.
    """
    if not 0 < number(epsilon) < math.inf:
        raise ValueError(
            f"layer_norm_epsilon is {shown(epsilon)}, expected a finite number > 0: "
            "with epsilon = 0 LayerNorm is discontinuous where all entries are equal, has "
            "no Lipschitz constant, and Lemma 5 does not apply; give it an epsilon > 0"
        )
    value = interval(nonnegative("scale", scale)) / sqrt(interval(number(epsilon)))
    return upper_bound(value, "Lipschitz constant of LayerNorm", ("ε > 0",), _SOURCE)


def layer_norm_change_cap(scale: float, width: int) -> Bound:
    """Bound the difference of any two outputs of a LayerNorm by 2 max|γ| √d.

    Args:
        scale: max|γ|.
        width: d.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Lemma 5 is stated without LayerNorm.
    """
    root = sqrt(interval(whole("width", width, 1)))
    value = 2 * interval(nonnegative("scale", scale)) * root
    return upper_bound(value, "distance of two outputs of LayerNorm", (), _SOURCE)


def layer_norm_output_norm(scale: float, shift_norm: float, width: int) -> Bound:
    """Bound the norm of the output of a LayerNorm by max|γ| √d + |β|.

    Args:
        scale: max|γ|.
        shift_norm: |β|.
        width: d.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Lemma 5 is stated without LayerNorm.
    """
    root = sqrt(interval(whole("width", width, 1)))
    value = interval(nonnegative("scale", scale)) * root
    value += interval(nonnegative("shift_norm", shift_norm))
    return upper_bound(value, "norm of the output of LayerNorm", (), _SOURCE)
