"""Lipschitz constant of the feed-forward block g(y) = y + W2 act(W1 y + b1) + b2.

The derivative of the activation lies in [1 - λ, λ]: relu λ = 1; gelu λ = Φ(√2) + √2
φ(√2), because gelu'(z) = Φ(z) + z φ(z), gelu'' = (2 - z²) φ vanishes at ±√2 only, and
gelu'(z) + gelu'(-z) = 1. The Jacobian is I + W2 S W1 with S diagonal, and S = I/2 + (S
- I/2), |S - I/2| <= λ - 1/2. A diagonal matrix commutes with a positive diagonal one,
so |W2 S W1| = |W2 T^{-1} S T W1| <= |S| π for every T, with π = |W2 T^{-1}| |T W1|.
Hence ℓ = min(1 + λ π, |I + W2 W1/2| + (λ - 1/2) π).
"""

from typing import Any

from mpmath import MPContext

from bounds.closed_form.domain import nonnegative, number
from bounds.interval import interval, log_upper, minimum
from bounds.result import Bound, Sense

RELU_SLOPE = 1.0


def gelu_slope() -> float:
    """Compute the largest slope of gelu, Φ(√2) + √2 φ(√2), rounded up.

    Returns:
        A float above the maximum of the derivative and within 3e-16 of it.

    Source:
        Hahn 2020, Lemma 5 has ReLU only; the constant L_fact for gelu.
    """
    context: Any = MPContext()
    context.dps = 50
    root = context.sqrt(2)
    slope = context.ncdf(root) + root * context.npdf(root)
    # 50 digits are far finer than the float grid here: one step up is an upper bound.
    return float(slope) + 2.0**-52


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
    if not number(slope) >= 0.5:
        raise ValueError(f"slope is {slope}, expected at least 1/2")
    pi = interval(nonnegative("product", product))
    half = interval(nonnegative("half_norm", half_norm))
    value = minimum(
        1 + interval(slope) * pi, half + (interval(slope) - interval(0.5)) * pi
    )
    return Bound(
        log_value=log_upper(value),
        sense=Sense.UPPER,
        quantity="Lipschitz constant of the feed-forward block",
        hypotheses=("the activation's derivative lies in [1 - λ, λ]",),
        source="Hahn 2020, Lemma 5, the constant L_fact",
    )
