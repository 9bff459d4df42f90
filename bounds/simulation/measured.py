"""Measures of a hard model over a set of inputs, from which a certificate is made.

Every number is rounded in the direction in which a certificate is safe: gaps down,
everything else up. So a certificate made of them holds, over exact reals, for the inputs
that were measured.
"""

import dataclasses
import functools
from typing import Literal

import numpy as np
from jaxtyping import Float

from jax_models.brief import BriefRepr

Kind = Literal["uniform", "tieless", "tied"]


@dataclasses.dataclass(frozen=True, repr=False)
class HeadMeasure(BriefRepr):
    """Measure of one head over all rows and inputs.

    Attributes:
        uniform: Whether it averages scores that are constant in every row whatever the
            input is.
        averages: Whether it averages over ties instead of choosing one.
        tied_rows: Rows whose maximum is attained twice or more.
        gap: Least distance from a maximum to the next score, in score units before the
            temperature; infinite where no row has another score.
        spread: Widest distance of two scores that count as tied; 0 where all are exact.
        odds: Largest (number of other scores)/(number of tied maxima) of a row.
        pull: Slope of a score in each coordinate of its query row and its key row,
            |Kᵀq_i| + |Qᵀk_j| at their largest.
        curvature: |QᵀK|, the change of a score when both rows move.
        half_range: Half the widest range of the head's output in each coordinate.
        gain: |O V|, the head's output per coordinate of a key row.
        score_size: Largest magnitude of a score.
        score_error: Largest rounding of a score computed in the model's float type.
    """

    uniform: bool
    averages: bool
    tied_rows: int
    gap: float
    spread: float
    odds: float
    pull: Float[np.ndarray, "width"]
    curvature: Float[np.ndarray, "width width"]
    half_range: Float[np.ndarray, "width"]
    gain: Float[np.ndarray, "width width"]
    score_size: float
    score_error: float

    @property
    def kind(self) -> Kind:
        """Uniform, tieless or tied, over the inputs measured."""
        if self.uniform:
            return "uniform"
        return "tied" if self.tied_rows else "tieless"

    def merge(self, other: "HeadMeasure") -> "HeadMeasure":
        """Returns the measure over both sets of rows."""
        return dataclasses.replace(
            self,
            tied_rows=self.tied_rows + other.tied_rows,
            gap=min(self.gap, other.gap),
            spread=max(self.spread, other.spread),
            odds=max(self.odds, other.odds),
            pull=np.maximum(self.pull, other.pull),
            half_range=np.maximum(self.half_range, other.half_range),
            score_size=max(self.score_size, other.score_size),
            score_error=max(self.score_error, other.score_error),
        )


@dataclasses.dataclass(frozen=True, repr=False)
class LayerMeasure(BriefRepr):
    """Measure of one layer.

    Attributes:
        heads: Measures of its heads.
        w1: Magnitudes of the feed-forward block's first matrix …
        w2: … and of its second, times the activation's largest slope.
        input_size: Largest magnitude of an activation that enters the layer.
    """

    heads: tuple[HeadMeasure, ...]
    w1: Float[np.ndarray, "d_ff width"]
    w2: Float[np.ndarray, "width d_ff"]
    input_size: float

    def merge(self, other: "LayerMeasure") -> "LayerMeasure":
        """Returns the measure over both sets of inputs."""
        pairs = zip(self.heads, other.heads, strict=True)
        return dataclasses.replace(
            self,
            heads=tuple(one.merge(two) for one, two in pairs),
            input_size=max(self.input_size, other.input_size),
        )


@dataclasses.dataclass(frozen=True, repr=False)
class HardMeasure(BriefRepr):
    """Measure of a hard model over a set of inputs of one length.

    Attributes:
        length: n.
        layers: Measures of its layers.
        num_inputs: Number of inputs measured.
        exact: Whether no activation or score is rounded.
    """

    length: int
    layers: tuple[LayerMeasure, ...]
    num_inputs: int
    exact: bool

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
        """γ(n) over heads that are not uniform; infinite where no scores are compared."""
        return min((head.gap for head in self._selective), default=np.inf)

    @property
    def tied_rows(self) -> int:
        """Rows of heads that are not uniform whose maximum is attained twice or more."""
        return sum(head.tied_rows for head in self._selective)

    @property
    def spread(self) -> float:
        """The widest distance of two scores that count as tied."""
        return max((head.spread for head in self._selective), default=0.0)

    @property
    def score_error(self) -> float:
        """Largest rounding of a score in the model's float type."""
        return max((head.score_error for head in self._selective), default=0.0)

    @property
    def _selective(self) -> tuple[HeadMeasure, ...]:
        return tuple(head for head in self.heads if not head.uniform)

    def merge(self, other: "HardMeasure") -> "HardMeasure":
        """Returns the measure over both sets of inputs."""
        pairs = zip(self.layers, other.layers, strict=True)
        return HardMeasure(
            self.length,
            tuple(one.merge(two) for one, two in pairs),
            self.num_inputs + other.num_inputs,
            self.exact and other.exact,
        )


def merge_all(measures: list[HardMeasure]) -> HardMeasure:
    """Returns the measure over several sets of inputs."""
    return functools.reduce(HardMeasure.merge, measures)
