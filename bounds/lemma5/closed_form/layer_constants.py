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
from typing import TypeAlias

from bounds.numbers.interval import Interval, interval, maximum, minimum, upper
from bounds.numbers.statements import instance, nonnegative, positive, several


# Two kinds of score, as in Hahn 2020, section 6. Only differences of logits within a
# row matter to a softmax, so a term that is the same for every key, such as the one of
# the key bias under a dot product, is dropped throughout. Logits are in nats, divided
# by the temperature. With F a bound on the norm of the activations that enter the
# attention, the closed forms need four numbers of every kind:
# `half_oscillation(F)`, A: half of the largest difference of two logits of one row;
# `magnitude(F)`: a bound on |logit|, terms constant over the keys dropped;
# `query_slope(F)`, `key_slope(F)`: by how much a logit can change per unit of change of
# the query's and of the key's activation. Before and after, norms are at most F.
@dataclasses.dataclass(frozen=True)
class DotProduct:
    """Dot-product score s_jw = (W_Q y_j + b_Q)·(W_K y_w + b_K)/τ, by norms that bound it.

    With the key bias dropped, s_jw = (M^T y_j + W_K^T b_Q/τ)·y_w for M = W_Q^T W_K/τ,
    so |s_jw| <= (mu F + c) F, and a change is dy_j·M y'_w + y_j·M dy_w + c-term·dy_w:
    at most mu F |dy_j| + (mu F + c) |dy_w|.

    Attributes:
        mu: Spectral norm of W_Q^T W_K, over τ; 1/√d_k included for a scaled score.
        c: Norm of W_K^T b_Q, over τ (scaled in the same way); zero without a query bias.

    Raises:
        ValueError: A number is negative or NaN.
    """

    mu: float
    c: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", nonnegative("mu", self.mu))
        object.__setattr__(self, "c", nonnegative("c", self.c))

    def half_oscillation(self, norm: Interval) -> Interval:
        """A = mu F² + c F, half the largest difference of logits of a row; F is `norm`."""
        return self.key_slope(norm) * norm

    def magnitude(self, norm: Interval) -> Interval:
        """|s| <= mu F² + c F."""
        return self.half_oscillation(norm)

    def query_slope(self, norm: Interval) -> Interval:
        """Slope mu F of a logit, per unit of the query's activation."""
        return interval(self.mu) * norm

    def key_slope(self, norm: Interval) -> Interval:
        """Slope mu F + c of a logit, per unit of the key's activation."""
        return interval(self.mu) * norm + interval(self.c)

    def printed_logit_bound(self, norm: Interval) -> Interval:
        """Hahn's A = F² C_att with C_att = mu + c/F."""
        return self.half_oscillation(norm)

    def at_temperature(self, temperature: float) -> "DotProduct":
        """Constants of the logits over a further temperature τ > 0, rounded up."""
        tau = interval(positive("temperature", temperature))
        return DotProduct(upper(interval(self.mu) / tau), upper(interval(self.c) / tau))


@dataclasses.dataclass(frozen=True)
class Additive:
    """Additive score s_jw = u·tanh(U1 y_j + U2 y_w + b)/τ, by norms that bound it.

    tanh is 1-Lipschitz and below 1, so s moves by at most m1 and m2 per unit and
    |s| <= |u|_1/τ; and a row oscillates by at most 2 m2 F, |s_jw - s_j0| <= m2 F with
    s_j0 the logit of a key at zero.

    Attributes:
        m1: Norm of u times spectral norm of U1, over τ.
        m2: Norm of u times spectral norm of U2, over τ.
        sup: Sum of |u|, over τ.

    Raises:
        ValueError: A number is negative or NaN.
    """

    m1: float
    m2: float
    sup: float

    def __post_init__(self) -> None:
        for name in ("m1", "m2", "sup"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))

    def half_oscillation(self, norm: Interval) -> Interval:
        """A = min(|u|_1/τ, m2 F), half the largest difference of a row's logits; F `norm`."""
        return minimum(interval(self.sup), interval(self.m2) * norm)

    def magnitude(self, norm: Interval) -> Interval:
        """|s| <= |u|_1/τ: not m2 F, whose reference logit moves with the query."""
        return interval(self.sup)

    def query_slope(self, norm: Interval) -> Interval:
        """Slope m1 of a logit, per unit of the query's activation, at every norm."""
        return interval(self.m1)

    def key_slope(self, norm: Interval) -> Interval:
        """Slope m2 of a logit, per unit of the key's activation, at every norm."""
        return interval(self.m2)

    def printed_logit_bound(self, norm: Interval) -> Interval:
        """Hahn's A = 2 F C_att with C_att = max(m1, m2)."""
        return 2 * norm * maximum(interval(self.m1), interval(self.m2))

    def at_temperature(self, temperature: float) -> "Additive":
        """Constants of the logits over a further temperature τ > 0, rounded up."""
        tau = interval(positive("temperature", temperature))
        return Additive(
            *(upper(interval(x) / tau) for x in (self.m1, self.m2, self.sup))
        )


Score: TypeAlias = DotProduct | Additive


@dataclasses.dataclass(frozen=True)
class HeadConstants:
    """Constants of one attention head that bounds on influence need: its score and gain.

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
    """Constants of one layer; the module states the inequalities that make them valid.

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
