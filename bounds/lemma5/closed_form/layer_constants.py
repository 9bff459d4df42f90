"""Constants of one layer that influence bounds need: norms, scores, gains of its maps.

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
from typing import Self, TypeAlias

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
    check_fields,
    instance,
    nonnegative,
    number,
    positive,
    several,
    shown,
    upper_bound,
    whole,
)


@dataclasses.dataclass(frozen=True)
class _Norms:
    """Norms that bound a head's logits, each a number >= 0, divided by the temperature τ."""

    def __post_init__(self) -> None:
        check_fields(self, nonnegative, *vars(self))

    def at_temperature(self, temperature: float) -> Self:
        """Constants of the logits divided by a further temperature τ > 0, rounded up."""
        tau = interval(positive("temperature", temperature))
        over = {name: upper(interval(x) / tau) for name, x in vars(self).items()}
        return dataclasses.replace(self, **over)


# Two kinds of score (Hahn 2020, section 6; proofs: docs/theory/lemma5.md, section 5). Logits
# are in nats, divided by the temperature; F bounds the norms of the activations that enter
# the attention. `half_oscillation(F)` is A, half of the largest difference of two logits of
# one row; `magnitude(F)` a bound on |logit|, terms constant over the keys dropped; the slopes
# are by how much a logit changes per unit of the query's and of the key's activation.
@dataclasses.dataclass(frozen=True)
class DotProduct(_Norms):
    """Dot-product score s_jw = (W_Q y_j + b_Q)·(W_K y_w + b_K)/τ, by norms that bound it.

    Attributes:
        mu: Spectral norm of W_Q^T W_K, over τ; 1/√d_k included for a scaled score.
        c: Norm of W_K^T b_Q, over τ (scaled in the same way); zero without a query bias.

    Raises:
        ValueError: A number is negative or NaN.
    """

    mu: float
    c: float = 0.0

    def half_oscillation(self, norm: Interval) -> Interval:
        """A = mu F² + c F, half the largest difference of logits of a row; F is `norm`."""
        return self.key_slope(norm) * norm

    def magnitude(self, norm: Interval) -> Interval:
        """Upper bound mu F² + c F on |logit|, terms shared by all keys dropped; F `norm`."""
        return self.half_oscillation(norm)

    def query_slope(self, norm: Interval) -> Interval:
        """Slope mu F of a logit, per unit of the query's activation; F is `norm`."""
        return interval(self.mu) * norm

    def key_slope(self, norm: Interval) -> Interval:
        """Slope mu F + c of a logit, per unit of the key's activation; F is `norm`."""
        return interval(self.mu) * norm + interval(self.c)

    def printed_logit_bound(self, norm: Interval) -> Interval:
        """Bound A on logits as Hahn prints it: F² C_att, C_att = mu + c/F; F is `norm`."""
        return self.half_oscillation(norm)


@dataclasses.dataclass(frozen=True)
class Additive(_Norms):
    """Additive score s_jw = u·tanh(U1 y_j + U2 y_w + b)/τ, by norms that bound it.

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

    def half_oscillation(self, norm: Interval) -> Interval:
        """A = min(|u|_1/τ, m2 F), half the largest difference of a row's logits; F `norm`."""
        return minimum(interval(self.sup), interval(self.m2) * norm)

    def magnitude(self, norm: Interval) -> Interval:
        """Upper bound |u|_1/τ on |logit|; m2 F bounds only differences in one row."""
        return interval(self.sup)

    def query_slope(self, norm: Interval) -> Interval:
        """Slope m1 of a logit, per unit of the query's activation, at every norm."""
        return interval(self.m1)

    def key_slope(self, norm: Interval) -> Interval:
        """Slope m2 of a logit, per unit of the key's activation, at every norm."""
        return interval(self.m2)

    def printed_logit_bound(self, norm: Interval) -> Interval:
        """Bound A on logits as Hahn prints it: 2 F C_att, C_att = max(m1, m2)."""
        return 2 * norm * maximum(interval(self.m1), interval(self.m2))


Score: TypeAlias = DotProduct | Additive


@dataclasses.dataclass(frozen=True)
class HeadConstants:
    """Constants of one attention head that bounds on influence need: its score and gain.

    Attributes:
        score: Norms of its logits, temperature included.
        gain: Lipschitz constant of the layer's output in the head's un-projected
            average, value and output matrices included.

    Raises:
        ValueError: The score is of another type, or the gain is negative or NaN.
    """

    score: Score
    gain: float

    def __post_init__(self) -> None:
        instance("score", self.score, DotProduct, Additive)
        check_fields(self, nonnegative, "gain")


@dataclasses.dataclass(frozen=True)
class LayerConstants:
    """Constants of one layer; the module states the inequalities that make them valid.

    Attributes:
        norm: F, bound on the norm of the activations u that enter the attention, over
            all inputs, positions and lengths considered.
        heads: Constants of its heads, one or more.
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
        numbers = ("norm", "skip_gain", "input_gain", "output_cap")
        check_fields(self, nonnegative, *numbers)
        heads = several("heads", self.heads, HeadConstants, least=1)
        object.__setattr__(self, "heads", heads)


_SOURCE = "Hahn 2020, Lemma 5, corrected: LayerNorm"


def growth_constant(embedding_norm: float, norms: Sequence[float]) -> float:
    """Compute the least C_fact >= 1 with F_k <= C_fact^k (|p| + |v|) for every layer.

    max(1, max_k (F_k/(|p| + |v|))^{1/k}).

    Args:
        embedding_norm: max_j |p_j| + max_σ |v_σ|, of position codes p and symbols v.
        norms: F_1 … F_L, bounds on the activations after each layer, biases included.

    Returns:
        C_fact, rounded up.

    Raises:
        ValueError: A number is negative or NaN, or the embeddings vanish and
                a layer does not.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant C_fact), read so that it is true.
    """
    start = interval(nonnegative("embedding_norm", embedding_norm))
    growth = interval(1)
    for k, value in enumerate(several("norms", norms), start=1):
        norm = nonnegative(f"norms[{k - 1}]", value)
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


def feed_forward_lipschitz(product: float, half_norm: float, *, slope: float) -> Bound:
    """Bound the Lipschitz constant of a feed-forward block, its residual included.

    min(1 + λ π, |I + W2 W1/2| + (λ - 1/2) π), for y + W2 act(W1 y + b1) + b2.

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
        Hahn 2020, Lemma 5 (the constant L_fact), made explicit:
        docs/theory/lemma5.md, section 5.
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


def layer_norm_lipschitz(scale: float, epsilon: float) -> Bound:
    """Bound the Lipschitz constant of a LayerNorm by max|γ|/√ε.

    Args:
        scale: max|γ|, of its scale γ.
        epsilon: ε > 0.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: ε is zero, or a number is out of its range.

    Source:
        Hahn 2020, Lemma 5 is stated without LayerNorm; docs/theory/lemma5.md, section 5.
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
        scale: max|γ|, of its scale γ.
        width: d.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Lemma 5 is stated without LayerNorm; docs/theory/lemma5.md, section 5.
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
        Hahn 2020, Lemma 5 is stated without LayerNorm; docs/theory/lemma5.md, section 5.
    """
    root = sqrt(interval(whole("width", width, 1)))
    value = interval(nonnegative("scale", scale)) * root
    value += interval(nonnegative("shift_norm", shift_norm))
    return upper_bound(value, "norm of the output of LayerNorm", (), _SOURCE)
