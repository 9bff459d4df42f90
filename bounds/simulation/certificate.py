"""Measured-norm certificate: a bound on the tempered twin's distance from its hard model.

The twin of a model of hard attention has softmax at a temperature in its place; a measure
holds the numbers of the hard model on which the bound rests, over some inputs. A head is
uniform if it averages and its scores do not depend on the key, else tied if a row attains
its maximum twice or more, else tieless; its gap is the least distance of a row's maximum
from the next score. An error is followed coordinate by coordinate, e in R^d with
|x̂_i - x_i| <= e for all rows i, x of the model and x̂ of the twin (`certified_error`);
docs/theory/softmax-approximation.md, section 9, does so with one number for all layers.
Measures are rounded in the direction in which a certificate is safe, gaps down, everything
else up: one made of them holds, over exact reals, for the inputs that were measured.
"""

import dataclasses
import math
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from bounds.restriction.enclosed import SMALLEST, inflated
from jax_models.arguments import BriefRepr

Error: TypeAlias = Float[np.ndarray, "width"]

Kind = Literal["uniform", "tieless", "tied"]


@dataclasses.dataclass(frozen=True, repr=False)
class HeadMeasure(BriefRepr):
    """Numbers of one hard head that a certificate needs, over all rows and inputs."""

    # Whether it averages scores that are constant in every row whatever the input is.
    uniform: bool
    averages: bool  # whether it averages over ties instead of choosing one
    tied_rows: int  # rows whose maximum is attained twice or more
    # γ, the least distance from a maximum to the next score, in score units before the
    # temperature; infinite where no row has another score.
    gap: float
    # w, the widest distance of two scores that count as tied; 0 where all are exact.
    spread: float
    # o, the largest (number of other scores)/(number of tied maxima) of a row.
    odds: float
    # p, the slope of a score in each coordinate of its query row and its key row: the
    # largest |Kᵀq_i| and |Qᵀk_j|, added up.
    pull: Error
    # B = |QᵀK|, the change of a score when both rows move.
    curvature: Float[np.ndarray, "width width"]
    # R/2, half the widest range of the head's output in each coordinate.
    half_range: Error
    # G = |O V|, the head's output per coordinate of a key row.
    gain: Float[np.ndarray, "width width"]
    score_size: float  # largest magnitude of a score
    score_error: float  # largest rounding of a score computed in the model's float type

    @property
    def kind(self) -> Kind:
        """Kind of the head over the inputs measured: uniform, tieless or tied."""
        if self.uniform:
            return "uniform"
        return "tied" if self.tied_rows else "tieless"

    def merge(self, other: "HeadMeasure") -> "HeadMeasure":
        """Returns the measure over the rows of both `self` and `other`."""
        names = ("spread", "odds", "pull", "half_range", "score_size", "score_error")
        largest: dict[str, Any] = {
            name: np.maximum(getattr(self, name), getattr(other, name))
            for name in names
        }
        ties, gap = self.tied_rows + other.tied_rows, min(self.gap, other.gap)
        return dataclasses.replace(self, tied_rows=ties, gap=gap, **largest)


@dataclasses.dataclass(frozen=True, repr=False)
class LayerMeasure(BriefRepr):
    """Numbers of one hard layer that a certificate needs, over all inputs."""

    heads: tuple[HeadMeasure, ...]
    # Magnitudes of the feed-forward block's first matrix.
    w1: Float[np.ndarray, "d_ff width"]
    # Magnitudes of its second matrix, times the activation's largest slope.
    w2: Float[np.ndarray, "width d_ff"]

    def merge(self, other: "LayerMeasure") -> "LayerMeasure":
        """Returns the measure over the inputs of both `self` and `other`."""
        heads = tuple(map(HeadMeasure.merge, self.heads, other.heads))
        return dataclasses.replace(self, heads=heads)


@dataclasses.dataclass(frozen=True, repr=False)
class HardMeasure(BriefRepr):
    """Measure of a hard model over a set of inputs of one length n, `length`."""

    length: int
    layers: tuple[LayerMeasure, ...]
    num_inputs: int

    @property
    def heads(self) -> tuple[HeadMeasure, ...]:
        """All heads of all layers."""
        return tuple(head for layer in self.layers for head in layer.heads)

    @property
    def kinds(self) -> tuple[tuple[Kind, ...], ...]:
        """The kind of every head, layer by layer."""
        return tuple(tuple(head.kind for head in layer.heads) for layer in self.layers)

    @property
    def gap(self) -> float:
        """γ(n), the least gap of heads that are not uniform; infinite where none has one."""
        return min((head.gap for head in self._selective), default=np.inf)

    @property
    def tied_rows(self) -> int:
        """Rows of heads that are not uniform whose maximum is attained twice or more."""
        return sum(head.tied_rows for head in self._selective)

    @property
    def spread(self) -> float:
        """Widest distance of two scores that count as tied, over heads not uniform."""
        return max((head.spread for head in self._selective), default=0.0)

    @property
    def score_error(self) -> float:
        """Largest score rounding in the model's float type, over heads not uniform."""
        return max((head.score_error for head in self._selective), default=0.0)

    @property
    def _selective(self) -> tuple[HeadMeasure, ...]:
        return tuple(head for head in self.heads if not head.uniform)

    def merge(self, other: "HardMeasure") -> "HardMeasure":
        """Returns the measure over the inputs of both `self` and `other`."""
        layers = tuple(map(LayerMeasure.merge, self.layers, other.layers))
        return HardMeasure(self.length, layers, self.num_inputs + other.num_inputs)


_UNIT = 2.0**-53
# exp and tanh of the C library are within eight units of rounding, products within one.
_FUNCTION = 1 + 16 * _UNIT
# Temperatures are looked for from TOP gaps down, in steps of a factor √2.
TOP = 8.0
STEPS = 240
HALVINGS = 30


def certified_error(measure: HardMeasure, temperature: float) -> float:
    """Upper bound on the error of the twin's final activations; infinite if none."""
    # It holds over exact reals for the inputs measured.
    # Everything below is a sum of terms >= 0, so that rounding only has to inflate it, and
    # underflow is replaced by the smallest normal number.
    width = measure.layers[0].w1.shape[1]
    error = np.zeros(width)
    for layer in measure.layers:
        error = _layer_error(layer, error, temperature)
    # Infinity times 0 is no number: it certifies nothing either.
    largest = float(error.max())
    return math.inf if math.isnan(largest) else largest


def certified_temperature(
    measure: HardMeasure, error: float
) -> tuple[float, float] | None:
    """Returns a temperature and its certified error, at most `error`, or None."""
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
        # By bisection of the logarithm, between a certified temperature and one that is not,
        # or the highest that is looked at.
        middle = math.sqrt(below * above)
        if certified_error(measure, middle) <= error:
            below = middle
        else:
            above = middle
    # With ties of some width w the bound is not monotone in τ: it is evaluated again.
    return below, certified_error(measure, below)


def _layer_error(layer: LayerMeasure, error: Error, temperature: float) -> Error:
    # h = e + Σ_heads (D R/2 + G e), by value transfer, and e' = h + s |W2| |W1| h with the
    # activation's largest slope s, which `layer.w2` has in it.
    attended = error
    for head in layer.heads:
        distance = weight_distance(head, score_error(head, error), temperature)
        attended = attended + distance * head.half_range + head.gain @ error
    out = attended + layer.w2 @ (layer.w1 @ attended)
    steps = 2 * len(error) + layer.w1.shape[0] + 4 * len(layer.heads) + 8
    # Each product below the normal range loses less than the smallest normal number.
    return inflated(out, steps) + steps * SMALLEST * (out > 0)


def score_error(head: HeadMeasure, error: Error) -> float:
    """Returns ρ, an upper bound on the distance of the twin's scores from the model's."""
    # ρ = p·e + eᵀ B e: a score is bilinear in its query row and its key row.
    moved = head.pull @ error + error @ (head.curvature @ error)
    return float(inflated(moved, 3 * len(error) + 4)) + 8 * SMALLEST * bool(error.any())


def weight_distance(head: HeadMeasure, error: float, temperature: float) -> float:
    """Returns D, an upper bound on the l1 distance of the twin's weights from hard ones."""
    # D = 2r/(1 + r) + [ties] 2 tanh((ρ + w/2)/(2τ)), at most 2: Lemma 33-T for scores that
    # are within w, the spread, of one another where the hard model takes them as tied, put in
    # the middle of their range. A uniform head's weights stay equal.
    if head.uniform:
        return 0.0
    within = 0.0
    if head.tied_rows:
        if not head.averages:
            return 2.0  # softmax shares the weight that the hard head gives to one
        off = error + head.spread / 2
        within = 2 * math.tanh(off / (2 * temperature)) * _FUNCTION
        within += SMALLEST * (off > 0)
    # r = o e^{-(γ - 2ρ)/τ}: the best score and another may move by ρ each, towards each
    # other.
    if not head.odds or math.isinf(head.gap):
        return min(2.0, within)
    left = head.gap - 2 * error
    left -= 4 * _UNIT * (head.gap + 2 * error)
    exponent = -left / temperature
    exponent += 4 * _UNIT * abs(exponent)
    # The exponential would overflow from 710 on, and D is at its most already.
    if exponent > 700:
        return 2.0
    odds = (head.odds * math.exp(exponent) + SMALLEST) * _FUNCTION
    return min(2.0, within + 2 * odds / (1 + odds) * _FUNCTION)
