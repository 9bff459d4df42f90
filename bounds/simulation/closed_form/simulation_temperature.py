"""Softmax of perturbed scores, and temperatures for a whole network (Lemma 33, Theorem 26).

Without ties an error ρ of the scores only narrows the gap. Among tied scores it moves
weight at once: ties need score errors far below the temperature, tieless rows only errors
far below the gap. Weights of scores s are ah(s) under average-hard attention and S_τ(s)
under softmax at temperature τ, and s' are scores within ρ of s; a gap γ is the least
distance of a row's maximum from another score, and k of its n scores attain the maximum.

A network here is L layers of h = x + Σ_heads W_V Σ_j α_j x_j, x' = h + W_2 ReLU(W_1 h +
b_1) + b_2, every parameter at most P in magnitude. With several heads d P, the gain of one
head's value map, is H d P; everything else is as for one. The bounds depend on these
numbers alone, so they are far above the errors of a given network. Theorems 26 and 26-T
rest on a gap γ(n). Proofs: docs/theory/softmax-approximation.md, sections 8 to 10.
"""

import dataclasses

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, log, maximum, minimum
from bounds.numbers.statements import (
    GAP,
    PAPER,
    PERTURBED,
    TEMPERATURE,
    TIELESS,
    instance,
    lower_bound,
    nonnegative,
    number,
    positive,
    upper_bound,
    whole,
)
from bounds.simulation.closed_form.weights_of_a_row import distance_of_odds

_NEAR = "no score of s' is farther than rho from that of s"


def value_transfer(spread: float, distance: float) -> Bound:
    """Bound the change of an attended value by the l1 distance of the weights.

    |Σ_j (α_j - β_j) v_j| <= (b - a) |α - β|_1 / 2 for weights α, β, each summing to 1,
    and values in [a, b]: the middle of the values may be subtracted from all of them.
    Tight for two values. With β = e_{j*} this is (b - a)(1 - α_{j*}).

    Args:
        spread: b - a, the width of the range of the values.
        distance: |α - β|_1; more than 2 counts as 2.

    Returns:
        An upper `Bound`, in the unit of the values.

    Raises:
        ValueError: A number is negative or NaN.

    Source:
        docs/theory/softmax-approximation.md, section 1.
    """
    half = interval(nonnegative("spread", spread)) / 2
    value = half * minimum(interval(nonnegative("distance", distance)), interval(2))
    quantity = "|sum_j (alpha_j - beta_j) v_j|"
    within = "the values are within a range of width spread"
    hypotheses = ("alpha and beta sum to 1", within)
    return upper_bound(value, quantity, hypotheses, f"{PAPER}, value transfer")


def perturbed_distance(
    gap: float, error: float, temperature: float, visible: int
) -> Bound:
    """Bound the l1 distance of softmax of perturbed scores from hard weights without ties.

    |ah(s) - S_τ(s')|_1 <= 2r/(1 + r), r = (n - 1) e^{-(γ - 2ρ)/τ}; at most 2r.

    Args:
        gap: γ > 0, of s.
        error: ρ in [0, γ/2).
        temperature: τ > 0.
        visible: n, the positions that the row sees.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain, or ρ is not below γ/2.

    Source:
        docs/theory/softmax-approximation.md, section 8, Lemma 33.
    """
    # The gap of s' is at least γ - 2ρ: Lemma 5' for that.
    others = whole("visible", visible, 1) - 1
    odds = others * exp(-_narrowed(gap, error) / positive("temperature", temperature))
    value = distance_of_odds(odds)
    return upper_bound(value, PERTURBED, (TIELESS, _NEAR), f"{PAPER}, Lemma 33")


def perturbed_ties_distance(
    gap: float, error: float, temperature: float, visible: int, tied: int
) -> Bound:
    """Bound the l1 distance of softmax of perturbed scores from average-hard weights.

    |ah(s) - S_τ(s')|_1 <= 2 tanh(ρ/(2τ)) + 2r/(1 + r), r = ((n - k)/k) e^{-(γ - 2ρ)/τ}.
    Either term is attained alone.

    Args:
        gap: γ > 0, of the k maxima of s to the other scores.
        error: ρ in [0, γ/2).
        temperature: τ > 0.
        visible: n, the positions that the row sees.
        tied: k in 1 … n, the number of maxima.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain, or ρ is not below γ/2.

    Source:
        docs/theory/softmax-approximation.md, section 8, Lemma 33-T.
    """
    count, members = whole("visible", visible, 1), whole("tied", tied, 1)
    if members > count:
        raise ValueError(f"tied is {tied}, expected at most visible = {visible}")
    tau = positive("temperature", temperature)
    # The weights outside the maxima over those inside; inside they are within e^{±ρ/τ}.
    odds = interval(count - members) / members * exp(-_narrowed(gap, error) / tau)
    value = tied_distance(interval(number(error)) / tau) + distance_of_odds(odds)
    return upper_bound(value, PERTURBED, (GAP, _NEAR), f"{PAPER}, Lemma 33-T")


def tied_distance(h: Interval) -> Interval:
    """Largest l1 distance 2 tanh(h/2) from uniform of weights in [e^-h, e^h], normalised."""
    # It is also at most h, which keeps its digits where 1 - e^{-h} does not.
    small = exp(-h)
    return minimum(h, 2 * (1 - small) / (1 + small))


def _narrowed(gap: float, error: float) -> Interval:
    """Interval of γ - 2ρ, gap less score errors; a ValueError if not above zero."""
    width = interval(positive("gap", gap)) - 2 * interval(nonnegative("error", error))
    if not width.a > 0:
        raise ValueError(
            f"error is {error}, expected below half the gap {gap}: the order of the "
            "scores may change"
        )
    return width


_SAME = "softmax replaces average-hard attention, all parameters stay"
_GAP = "gap is one of all non-uniform heads, rows and inputs of length n"


@dataclasses.dataclass(frozen=True)
class NetworkShape:
    """Dimensions and sizes of an average-hard transformer, query and key biases included.

    Biases of queries, keys and values are weights of a coordinate that is 1, which counts
    in `width`; a factor 1/√d_k belongs to the queries, a head's output matrix to its
    values.

    Attributes:
        width: d, of the activations.
        key_width: dk, of queries and keys.
        hidden: m, neurons of a feed-forward block.
        layers: L, the number of layers.
        parameter: P >= 1, at least the magnitude of every parameter.
        heads: H, of each layer.
    """

    width: int
    key_width: int
    hidden: int
    layers: int
    parameter: float
    heads: int = 1

    def __post_init__(self) -> None:
        sizes = ("width", "key_width", "hidden", "layers", "heads")
        vars(self).update({x: whole(x, getattr(self, x), 1) for x in sizes})
        vars(self).update(parameter=positive("parameter", self.parameter))
        if self.parameter < 1:
            raise ValueError(f"parameter is {self.parameter}, expected at least 1")

    @property
    def growth(self) -> Interval:
        """G = (1 + H d P)(1 + m d P² + m P² + P), by which a layer's activations grow."""
        p, m = interval(self.parameter), self.hidden
        # |h| <= (1 + H d P)|x|, a neuron is at most d P |h| + P, and the output at most |h| +
        # m P (d P |h| + P) + P.
        hidden = 1 + m * self.width * p**2 + m * p**2 + p
        return (1 + self._value_gain) * hidden

    @property
    def score_gain(self) -> Interval:
        """K1 = 6 d² dk P² G^{L-1}; input errors ε move scores by <= K1 x(n) ε / 2."""
        # A score x_iᵀB x_j with Σ|B_ab| <= d² dk P² is off by d² dk P² (2Aε + ε²) at most,
        # and ε <= A = G^{L-1} x(n).
        size = 6 * self.width**2 * self.key_width * interval(self.parameter) ** 2
        return size * self.growth ** (self.layers - 1)

    @property
    def error_gain(self) -> Interval:
        """Gain K2 of a layer's error: (1 + m d P²) max(1 + H d P, 2 H d P G^{L-1})."""
        value = self._value_gain
        # (1 + H d P) ε of the input's error, and H d P A times the distance of the weights,
        # 2 n e^{-(γ - 2ρ)/τ} at most, with A = G^{L-1} x(n); the block with its residual
        # multiplies by 1 + m d P².
        attention = maximum(1 + value, 2 * value * self.growth ** (self.layers - 1))
        hidden = self.hidden * self.width * interval(self.parameter) ** 2
        return (1 + hidden) * attention

    @property
    def _value_gain(self) -> Interval:
        return self.heads * self.width * interval(self.parameter)


def activation_bound(shape: NetworkShape, embedding: float, layer: int) -> Bound:
    """Bound the largest activation after some layers, whatever the attention weights.

    |x^(l)|_inf <= G^l x(n).

    Args:
        shape: The network's dimensions and sizes.
        embedding: x(n) >= 1, at least every entry of the embeddings in magnitude.
        layer: l in 0 … L.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 9, Lemma 29.
    """
    depth = whole("layer", layer, 0)
    if depth > instance("shape", shape, NetworkShape).layers:
        raise ValueError(f"layer is {layer}, expected at most {shape.layers}")
    value = shape.growth**depth * embedding_size(embedding)
    quantity, hypotheses = f"|x^({depth})|_inf", ("weights sum to 1",)
    return upper_bound(value, quantity, hypotheses, f"{PAPER}, Lemma 29")


def layer_error(
    shape: NetworkShape,
    *,
    embedding: float,
    gap: float,
    length: int,
    temperature: float,
    error: float,
) -> Bound:
    """Bound the error after one layer of softmax in place of tieless or uniform heads.

    K2 (ε + n x(n) e^{-(γ - K1 x(n) ε)/τ}) for an input error ε with K1 x(n) ε < γ. That
    ε is at most the activations' size A = G^{L-1} x(n), which bounds the score error by
    3 d² dk P² A ε, follows: scores are at most d² dk P² A², a gap twice that.

    Args:
        shape: The network's dimensions and sizes.
        embedding: x(n) >= 1, at least every entry of the embeddings in magnitude.
        gap: γ > 0, of all heads that are not uniform.
        length: n.
        temperature: τ > 0.
        error: ε, the largest error of an entry of the layer's input.

    Returns:
        An upper `Bound` on the largest error of an entry of the layer's output.

    Raises:
        ValueError: A number is out of its domain, or K1 x(n) ε is not below γ.

    Source:
        docs/theory/softmax-approximation.md, section 9, Lemma 25.
    """
    x, eps = embedding_size(embedding), interval(nonnegative("error", error))
    score_gain = instance("shape", shape, NetworkShape).score_gain
    left = interval(positive("gap", gap)) - score_gain * x * eps
    if not left.a > 0:
        raise ValueError(
            f"error is {error}, expected below gap/(K1 x(n)): the order of the scores "
            "may change"
        )
    tail = exp(-left / positive("temperature", temperature))
    fresh = whole("length", length, 1) * x * tail
    value, quantity = shape.error_gain * (eps + fresh), "|x^(l+1) - x'^(l+1)|_inf"
    heads = "every head is uniform, or tieless with the gap"
    hypotheses = (heads, "|x^(l) - x'^(l)|_inf <= error")
    return upper_bound(value, quantity, hypotheses, f"{PAPER}, Lemma 25")


def embedding_size(embedding: float) -> Interval:
    """Interval of x(n), the size `embedding` of embeddings; a ValueError below 1."""
    size = positive("embedding", embedding)
    if size < 1:
        raise ValueError(
            f"embedding is {embedding}, expected at least 1: x(n) is the largest "
            "magnitude of an entry, or 1 if that is more"
        )
    return interval(size)


def simulation_temperature(
    shape: NetworkShape, *, embedding: float, gap: float, length: int, error: float
) -> Bound:
    """Compute a temperature at which softmax keeps a tieless network within an error.

    τ(n) = γ/(2[log(n x/E) + L log(2 K2)]), E = min(ε, γ/(2 K1 x)). At this temperature
    and below, no entry of the final activations differs by more than ε.

    Args:
        shape: The network's dimensions and sizes.
        embedding: x(n) >= 1, at least every entry of the embeddings in magnitude.
        gap: γ(n) > 0; any positive number, say 1, where all heads are uniform.
        length: n.
        error: ε in (0, 1].

    Returns:
        A lower `Bound` on the largest such temperature. `log_value` keeps its digits
        where the temperature itself is below every float.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 10, Theorem 26.
    """
    gamma = interval(positive("gap", gap))
    # At this τ the fresh error η = n x e^{-γ/(2τ)} of a layer is E (2 K2)^{-L} at most, and
    # by induction the error after layer l is E (2 K2)^{l-L}: K2 (ε_l + η) <= 2 K2 ε_l.
    start, gain, _ = _terms(shape, embedding, gamma, length, error)
    value = gamma / (2 * (start + shape.layers * gain))
    hypotheses = ("every head is uniform or has no ties", _GAP, _SAME)
    return lower_bound(value, TEMPERATURE, hypotheses, f"{PAPER}, Theorem 26")


def tied_simulation_temperature(
    shape: NetworkShape, *, embedding: float, gap: float, length: int, error: float
) -> Bound:
    """Compute a temperature at which softmax keeps a network with ties within an error.

    τ(n) = γ/(4[log(n x/E) + L log(2 K2) + L log c]), c = max(1, L K1 x²/γ), E as in
    Theorem 26. Ties must be exact: a temperature this low tells scores apart that differ
    by rounding alone.

    Args:
        shape: The network's dimensions and sizes.
        embedding: x(n) >= 1, at least every entry of the embeddings in magnitude.
        gap: γ(n) > 0, from the maximum to the next distinct score.
        length: n.
        error: ε in (0, 1].

    Returns:
        A lower `Bound` on the largest such temperature.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 10, Theorem 26-T.
    """
    gamma = interval(positive("gap", gap))
    start, gain, x = _terms(shape, embedding, gamma, length, error)
    layers = shape.layers
    # With ties the error grows by Γ = 1 + K1 x²/(4τ) too, and log Γ <= γ/(4 L τ) + log c.
    ties = maximum(interval(1), layers * shape.score_gain * x**2 / gamma)
    value = gamma / (4 * (start + layers * gain + layers * log(ties)))
    hypotheses = ("tied scores are equal as real numbers", _GAP, _SAME)
    return lower_bound(value, TEMPERATURE, hypotheses, f"{PAPER}, Theorem 26 with ties")


def _terms(
    shape: NetworkShape, embedding: float, gamma: Interval, length: int, error: float
) -> tuple[Interval, Interval, Interval]:
    """Intervals of Theorem 26's log(n x/E) and log(2 K2), and of x = x(n)."""
    eps = positive("error", error)
    if eps > 1:
        raise ValueError(f"error is {error}, expected at most 1")
    x = embedding_size(embedding)
    score_gain = instance("shape", shape, NetworkShape).score_gain
    # Up to E the scores' errors narrow the gap by half at most.
    allowed = minimum(interval(eps), gamma / (2 * score_gain * x))
    start = log(whole("length", length, 1) * x / allowed)
    return start, log(2 * shape.error_gain), x
