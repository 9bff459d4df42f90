"""LayerNorm as a map of norms: how much it stretches, and what it never exceeds.

LN(z) = γ ∘ Pz/√(|Pz|²/d + ε) + β, P the centring projection, d the width. With
s = √(|w|²/d + ε) the map w -> w/s has Jacobian (I - w w^T/(d s²))/s, whose norm is at
most 1/s. So the Lipschitz constant is at most max|γ|/√ε, and on a ball of radius R
around z at most max|γ|/√(((|Pz| - R)_+)²/d + ε); and |w/s| <= √d whatever w is.

With ε = 0 the map is discontinuous at Pz = 0: activations with almost equal entries are
told apart however close they are. No Lipschitz constant exists, nothing in Lemma 5
applies, and its conclusion can fail.

Lipschitz constant of the feed-forward block g(y) = y + W2 act(W1 y + b1) + b2.

The derivative of the activation lies in [1 - λ, λ]: relu λ = 1; gelu λ = Φ(√2) + √2
φ(√2), because gelu'(z) = Φ(z) + z φ(z), gelu'' = (2 - z²) φ vanishes at ±√2 only, and
gelu'(z) + gelu'(-z) = 1. The Jacobian is I + W2 S W1 with S diagonal, and S = I/2 + (S
- I/2), |S - I/2| <= λ - 1/2. A diagonal matrix commutes with a positive diagonal one,
so |W2 S W1| = |W2 T^{-1} S T W1| <= |S| π for every T, with π = |W2 T^{-1}| |T W1|.
Hence ℓ = min(1 + λ π, |I + W2 W1/2| + (λ - 1/2) π).
"""

import math
from typing import Any

from mpmath import MPContext

from bounds.closed_form.domain import nonnegative, number, whole
from bounds.interval import Interval, interval, log_upper, maximum, minimum, sqrt
from bounds.result import Bound, Sense

RELU_SLOPE = 1.0
_SOURCE = "Hahn 2020, Lemma 5, corrected: LayerNorm"


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
            f"layer_norm_epsilon is {epsilon}, expected a finite number > 0: with "
            "epsilon = 0 LayerNorm is discontinuous where all entries are equal, has "
            "no Lipschitz constant, and Lemma 5 does not apply; give it an epsilon > 0"
        )
    margin = interval(0)
    if nonnegative("centred_norm", centred_norm) > nonnegative("radius", radius):
        margin = maximum(interval(centred_norm) - interval(radius), interval(0))
    spread = margin**2 / whole("width", width, 1) + interval(epsilon)
    value = interval(nonnegative("scale", scale)) / sqrt(spread)
    return _bound(value, "Lipschitz constant of LayerNorm", ("ε > 0",))


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
    return _bound(value, "distance of two outputs of LayerNorm", ())


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
    return _bound(value, "norm of the output of LayerNorm", ())


def _bound(value: Interval, quantity: str, hypotheses: tuple[str, ...]) -> Bound:
    return Bound(log_upper(value), Sense.UPPER, quantity, hypotheses, _SOURCE)
