"""The numbers of one layer that the influence bounds need, whatever its shape.

A layer reads activations y, attends over u = N(y) (a LayerNorm before the attention, or
u = y), and returns y'. Write du, dy for changes, a_h = Σ_w α_w u_w for the average of
head h *before* its value and output matrices. Every layer of the residual and of the
concatenating form, with LayerNorms anywhere, satisfies

    |du| <= input_gain |dy|                 and |du| <= 2 norm,
    |dy'| <= skip_gain |dy| + Σ_h gain_h |da_h|    and |dy'| <= output_cap,

and that is all the recursions use. Biases of values and outputs drop out of changes;
they enter only through `norm`. Nothing here has a unit but that of the activations:
`norm` and `output_cap` are in it, gains are pure numbers, scores turn it into nats.
"""

import dataclasses
import math
from collections.abc import Sequence

from bounds.lemma5.closed_form.scores import Additive, DotProduct, Score
from bounds.numbers.interval import Interval, interval, upper
from bounds.numbers.statements import instance, nonnegative, nonnegatives, several


@dataclasses.dataclass(frozen=True)
class HeadConstants:
    """One head.

    Attributes:
        score: Norms of its logits, temperature included.
        gain: Lipschitz constant of the layer's output in the head's un-projected
            average, value and output matrices included.

    Raises:
        ValueError: The score is neither `DotProduct` nor `Additive`, or the gain is
            negative or NaN.
    """

    score: Score
    gain: float

    def __post_init__(self) -> None:
        instance("score", self.score, DotProduct, Additive)
        object.__setattr__(self, "gain", nonnegative("gain", self.gain))


@dataclasses.dataclass(frozen=True)
class LayerConstants:
    """One layer; see the module for the inequalities that make it valid.

    Attributes:
        norm: F, bound on the norm of the activations u that enter the attention, over
            all inputs, positions and lengths considered.
        heads: Its heads, at least one.
        skip_gain: Lipschitz constant of the output in y with the averages held fixed.
        input_gain: Lipschitz constant of the map before the attention; 1 where none.
        output_cap: No two outputs differ by more: twice their norm bound, or
            2 max|γ| √d after a LayerNorm; infinite where unknown.

    Raises:
        ValueError: A number is negative or NaN, or there is no head.
    """

    norm: float
    heads: tuple[HeadConstants, ...]
    skip_gain: float
    input_gain: float = 1.0
    output_cap: float = math.inf

    def __post_init__(self) -> None:
        for name in ("norm", "skip_gain", "input_gain", "output_cap"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        heads = several("heads", self.heads, HeadConstants, least=1)
        object.__setattr__(self, "heads", heads)

    @classmethod
    def residual(
        cls,
        *,
        norm: float,
        scores: Sequence[Score],
        omegas: Sequence[float],
        block_lipschitz: float,
        input_gain: float = 1.0,
        middle_gain: float = 1.0,
        output_gain: float = 1.0,
        output_cap: float = math.inf,
    ) -> "LayerConstants":
        """Constants of r = y + Σ_h O_h b_h, then y' = g(r), products rounded up.

        Then |dr| <= |dy| + Σ ω_h |da_h|, and g multiplies by its Lipschitz constant. There
        is one score and one ω_h = |O_h V_h| per head; `block_lipschitz` is that of the
        feed-forward block with its residual and the LayerNorm inside it, if any. The gains
        are Lipschitz constants of LayerNorms: before the attention, of r, and of the
        block's output. A cap on the LayerNorm of r enters `output_cap` times
        block_lipschitz and output_gain.
        """
        skip = upper(
            interval(nonnegative("block_lipschitz", block_lipschitz))
            * interval(nonnegative("middle_gain", middle_gain))
            * interval(nonnegative("output_gain", output_gain))
        )
        gains = [upper(interval(skip) * w) for w in nonnegatives("omegas", omegas)]
        return cls(norm, _heads(scores, gains), skip, input_gain, output_cap)

    @classmethod
    def concat(
        cls,
        *,
        norm: float,
        scores: Sequence[Score],
        omegas: Sequence[float],
        skip_gain: float,
        head_lipschitz: Sequence[float],
        output_cap: float = math.inf,
    ) -> "LayerConstants":
        """Constants of y' = f(y, b_1, …, b_H), the form of Hahn 2020, rounded up.

        ω_h is the spectral norm of the value matrix V_h, 1 where values are the activations
        themselves; `skip_gain` and `head_lipschitz` are Lipschitz constants of f in y and
        in b_h.
        """
        gains = [upper(gain) for gain in head_gains(head_lipschitz, omegas)]
        return cls(norm, _heads(scores, gains), skip_gain, 1.0, output_cap)

    def at_temperature(self, temperature: float) -> "LayerConstants":
        """The layer with its logits divided by a further temperature τ > 0.

        The temperature enters nothing else: only mu, c, m1, m2 and through them A. One
        that depends on the row enters by its smallest value over the rows, since every
        bound grows with those numbers.
        """
        heads = tuple(
            HeadConstants(head.score.at_temperature(temperature), head.gain)
            for head in self.heads
        )
        return dataclasses.replace(self, heads=heads)


def head_gains(
    head_lipschitz: Sequence[float], omegas: Sequence[float]
) -> list[Interval]:
    """ℓ_h ω_h of every head of the concatenating form."""
    ells, sizes = (
        nonnegatives("head_lipschitz", head_lipschitz),
        nonnegatives("omegas", omegas),
    )
    if len(ells) != len(sizes):
        raise ValueError(
            f"{len(ells)} head_lipschitz and {len(sizes)} omegas, expected as many"
        )
    return [interval(x) * y for x, y in zip(ells, sizes, strict=True)]


def _heads(
    scores: Sequence[Score], gains: Sequence[float]
) -> tuple[HeadConstants, ...]:
    scores = several("scores", scores, DotProduct, Additive)
    if len(scores) != len(gains):
        raise ValueError(
            f"{len(scores)} scores and {len(gains)} omegas, expected as many"
        )
    return tuple(HeadConstants(s, g) for s, g in zip(scores, gains, strict=True))
