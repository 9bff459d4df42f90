"""Lipschitz constants and output norms of a layer's maps on single positions (rows)."""

import math
from collections.abc import Sequence
from typing import Any

from mpmath import MPContext

from bounds.lemma5.closed_form.layer_constants import head_gains
from bounds.numbers.bound import Bound
from bounds.numbers.interval import (
    Interval,
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

RELU_SLOPE = 1.0
_SOURCE = "Hahn 2020, Lemma 5, corrected: LayerNorm"


# Bounds F_k on the norms of activations, layer by layer.
#
# F_0 is the largest norm of an embedding plus its position encoding, which must be
# bounded over positions. An average of vectors is no longer than the longest; a Lipschitz
# map g satisfies |g(z)| <= |g(0)| + ℓ|z|. This is what the printed 2 C_fact^L (|p| + |v|)
# stands for; unlike it, biases count, and no factor is assumed to be at least one.
def residual_norm(
    norm: float,
    *,
    attended_norm: float,
    omegas: Sequence[float],
    attention_offset: float,
    block_lipschitz: float,
    block_offset: float,
) -> Bound:
    """Bound the output of r = y + Σ_h O_h b_h + o, y' = g(r).

    F' = ℓ (F + F_u Σ_h ω_h + |o|) + |g(0)|.

    Args:
        norm: F, of the layer's input.
        attended_norm: F_u, of what the attention reads: F, or that of a LayerNorm
            before.
        omegas: ω_h, spectral norm of O_h V_h.
        attention_offset: |o|, of the output bias plus O times the value biases.
        block_lipschitz: ℓ of the feed-forward block g with its residual.
        block_offset: |g(0)| = |W2 act(b1) + b2|.

    Returns:
        An upper `Bound` on |y'|.

    Raises:
        ValueError: A number is negative or NaN.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant F), made explicit.
    """
    total = sum(nonnegatives("omegas", omegas), start=interval(0))
    through = _checked("attended_norm", attended_norm) * total
    middle = _checked("norm", norm) + through
    middle += _checked("attention_offset", attention_offset)
    value = _checked("block_lipschitz", block_lipschitz) * middle
    return _norm_bound(value + _checked("block_offset", block_offset))


def concat_norm(
    norm: float,
    *,
    skip_gain: float,
    head_lipschitz: Sequence[float],
    omegas: Sequence[float],
    offset: float,
) -> Bound:
    """Bound the output of y' = f(y, b_1, …, b_H), the form of Hahn 2020.

    F' = (ℓ_y + Σ_h ℓ_h ω_h) F + |f at zero activations|.

    Args:
        norm: F, of the layer's input.
        skip_gain: ℓ_y, Lipschitz constant of f in y.
        head_lipschitz: ℓ_h, Lipschitz constant of f in b_h.
        omegas: ω_h, spectral norm of the value matrix; 1 where values are activations.
        offset: |f| at y = 0 and b_h = the value bias: the offset of the layer.

    Returns:
        An upper `Bound` on |y'|.

    Raises:
        ValueError: A number is negative or NaN, or the counts differ.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant F), made explicit.
    """
    gain = _checked("skip_gain", skip_gain) + sum(head_gains(head_lipschitz, omegas))
    return _norm_bound(gain * _checked("norm", norm) + _checked("offset", offset))


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
    start = _checked("embedding_norm", embedding_norm)
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


def _checked(name: str, value: float) -> Interval:
    return interval(nonnegative(name, value))


def _norm_bound(value: Interval) -> Bound:
    return upper_bound(
        value,
        "norm of the activations after the layer",
        ("norms and Lipschitz constants are upper bounds",),
        "Hahn 2020, proof of Lemma 5, the constant F",
    )


def gelu_slope() -> float:
    """Compute the largest slope of gelu, Φ(√2) + √2 φ(√2), rounded up.

    Returns:
        A float above the maximum of the derivative and less than 3e-16 above.

    Source:
        Hahn 2020, Lemma 5 has ReLU only; the constant L_fact for gelu.
    """
    context: Any = MPContext()
    context.dps = 50
    root = context.sqrt(2)
    slope = context.ncdf(root) + root * context.npdf(root)
    # 50 digits are far finer than the float grid here: one step up is an upper bound.
    return float(slope) + 2.0**-52


# Lipschitz constant of the feed-forward block g(y) = y + W2 act(W1 y + b1) + b2.
#
# The derivative of the activation lies in [1 - λ, λ]: relu λ = 1; gelu λ = Φ(√2) + √2
# φ(√2), because gelu'(z) = Φ(z) + z φ(z), gelu'' = (2 - z²) φ vanishes at ±√2 only, and
# gelu'(z) + gelu'(-z) = 1. The Jacobian is I + W2 S W1 with S diagonal, and S = I/2 + (S
# - I/2), |S - I/2| <= λ - 1/2. A diagonal matrix commutes with a positive diagonal one,
# so |W2 S W1| = |W2 T^{-1} S T W1| <= |S| π for every T, with π = |W2 T^{-1}| |T W1|.
# Hence ℓ = min(1 + λ π, |I + W2 W1/2| + (λ - 1/2) π).
def feed_forward_lipschitz(
    product: float, half_norm: float, *, slope: float = RELU_SLOPE
) -> Bound:
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
# most 1/s. So the Lipschitz constant is at most max|γ|/√ε, and on a ball of radius R
# around z at most max|γ|/√(((|Pz| - R)_+)²/d + ε); and |w/s| <= √d whatever w is.
#
# With ε = 0 the map is discontinuous at Pz = 0: activations with almost equal entries are
# told apart however close they are. No Lipschitz constant exists, nothing in Lemma 5
# applies, and its conclusion can fail.
def layer_norm_lipschitz(
    scale: float,
    epsilon: float,
    *,
    width: int = 1,
    centred_norm: float = 0.0,
    radius: float = math.inf,
) -> Bound:
    """Bound the Lipschitz constant of a LayerNorm, everywhere or on a ball.

    max|γ|/√(((|Pz| - R)_+)²/d + ε).

    Args:
        scale: max|γ|.
        epsilon: ε > 0.
        width: d; needed on a ball only.
        centred_norm: |Pz| of the centre z of the ball, rounded down.
        radius: R of the ball; infinite for everywhere.

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
    margin = interval(0)
    centre = nonnegative("centred_norm", centred_norm)
    reach = nonnegative("radius", radius)
    # |Pz| on the ball is at least this; only ε is left where the ball meets Pz = 0.
    if centre > reach:
        margin = interval(centre) - interval(reach)
    spread = margin**2 / whole("width", width, 1) + interval(number(epsilon))
    value = interval(nonnegative("scale", scale)) / sqrt(spread)
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
