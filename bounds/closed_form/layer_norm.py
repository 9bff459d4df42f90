"""LayerNorm as a map of norms: how much it stretches, and what it never exceeds.

LN(z) = γ ∘ Pz/√(|Pz|²/d + ε) + β, P the centring projection, d the width. With
s = √(|w|²/d + ε) the map w -> w/s has Jacobian (I - w w^T/(d s²))/s, whose norm is at
most 1/s. So the Lipschitz constant is at most max|γ|/√ε, and on a ball of radius R
around z at most max|γ|/√(((|Pz| - R)_+)²/d + ε); and |w/s| <= √d whatever w is.

With ε = 0 the map is discontinuous at Pz = 0: activations with almost equal entries are
told apart however close they are. No Lipschitz constant exists, nothing in Lemma 5
applies, and its conclusion can fail.
"""

import math

from bounds.closed_form.domain import nonnegative, number, whole
from bounds.interval import Interval, interval, log_upper, maximum, sqrt
from bounds.result import Bound, Sense

_SOURCE = "Hahn 2020, Lemma 5, corrected: LayerNorm"


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
