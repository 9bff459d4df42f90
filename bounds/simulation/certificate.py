"""Measured-norm certificate: a bound on the tempered twin's distance from its hard model.

An error is followed coordinate by coordinate, e in R^d with |x̂_i - x_i| <= e for all rows
i. For a head with pull p, curvature B, gap γ, spread w and odds o (see `HeadMeasure`):

    ρ = p·e + eᵀ B e                                     the error of a score,
    r = o e^{-(γ - 2ρ)/τ},   D = 2r/(1 + r) + [ties] 2 tanh((ρ + w/2)/(2τ)),   at most 2,

D bounds the l1 distance of the twin's weights from the hard ones: Lemma 33-T for scores
that are within w of one another where the hard model takes them as tied, put in the
middle of their range. With ranges R/2 and gain G of what the heads write, value transfer
and ReLU's (GELU's) slope s give

    h = e + Σ_heads (D R/2 + G e),    e' = h + s |W2| |W1| h.

A uniform head has D = 0, a unique-hard one with ties D = 2. With a bound a on the layer's
entries p <= 2 a |B| and R/2 <= a |V|, as docs/theory/softmax-approximation.md, section 9,
takes them for all layers at once. Everything is a sum of terms >= 0, so that rounding only
has to inflate it, and underflow is replaced by the smallest normal number.
"""

import math

import numpy as np
from jaxtyping import Float

from bounds.restriction.enclosed import SMALLEST, inflated
from bounds.simulation.measured import HardMeasure, HeadMeasure, LayerMeasure

_UNIT = 2.0**-53
# exp and tanh of the C library are within eight units of rounding, products within one.
_FUNCTION = 1 + 16 * _UNIT
# Temperatures are looked for from TOP gaps down, in steps of a factor √2.
TOP = 8.0
STEPS = 240
HALVINGS = 30


def certified_error(measure: HardMeasure, temperature: float) -> float:
    """Upper bound on the error of every entry of the twin's final activations.

    It holds over exact reals for the inputs measured; +inf certifies nothing.
    """
    width = measure.layers[0].w1.shape[1]
    error = np.zeros(width)
    for layer in measure.layers:
        error = _layer_error(layer, error, temperature)
    largest = float(error.max())
    return math.inf if math.isnan(largest) else largest


def certified_temperature(
    measure: HardMeasure, error: float
) -> tuple[float, float] | None:
    """Returns a large temperature with a certified error, and that error."""
    gaps = [head.gap for head in measure.heads if math.isfinite(head.gap)]
    above = TOP * max(gaps, default=1.0)
    for _ in range(STEPS):
        tau = above / math.sqrt(2)
        if certified_error(measure, tau) <= error:
            break
        above = tau
    else:
        return None
    below = tau
    for _ in range(HALVINGS):
        middle = math.sqrt(below * above)
        if certified_error(measure, middle) <= error:
            below = middle
        else:
            above = middle
    # With ties of some width w the bound is not monotone in τ: it is evaluated again.
    return below, certified_error(measure, below)


def _layer_error(
    layer: LayerMeasure, error: Float[np.ndarray, "width"], temperature: float
) -> Float[np.ndarray, "width"]:
    attended = error
    for head in layer.heads:
        distance = weight_distance(head, score_error(head, error), temperature)
        attended = attended + distance * head.half_range + head.gain @ error
    out = attended + layer.w2 @ (layer.w1 @ attended)
    steps = 2 * len(error) + layer.w1.shape[0] + 4 * len(layer.heads) + 8
    return inflated(out, steps) + _floor(steps) * (out > 0)


def score_error(head: HeadMeasure, error: Float[np.ndarray, "width"]) -> float:
    """Returns ρ, an upper bound on the distance of the twin's scores from the model's."""
    moved = head.pull @ error + error @ (head.curvature @ error)
    return float(inflated(moved, 3 * len(error) + 4)) + _floor(8) * bool(error.any())


def weight_distance(head: HeadMeasure, error: float, temperature: float) -> float:
    """Returns D, an upper bound on the l1 distance of the twin's weights from hard ones."""
    if head.uniform:
        return 0.0
    within = 0.0
    if head.tied_rows:
        if not head.averages:
            return 2.0  # softmax shares the weight that the hard head gives to one
        off = error + head.spread / 2
        within = 2 * math.tanh(off / (2 * temperature)) * _FUNCTION
        within += SMALLEST * (off > 0)
    return min(2.0, within + _odds_distance(head, error, temperature))


def _odds_distance(head: HeadMeasure, error: float, temperature: float) -> float:
    """2r/(1 + r), rounded up."""
    if not head.odds or math.isinf(head.gap):
        return 0.0
    left = head.gap - 2 * error
    left -= 4 * _UNIT * (head.gap + 2 * error)
    exponent = -left / temperature
    exponent += 4 * _UNIT * abs(exponent)
    if exponent > 700:
        return 2.0
    odds = (head.odds * math.exp(exponent) + SMALLEST) * _FUNCTION
    return 2 * odds / (1 + odds) * _FUNCTION


def _floor(steps: int) -> float:
    """Bound on the loss of products below the normal range."""
    return steps * SMALLEST
