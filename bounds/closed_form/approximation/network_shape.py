"""The numbers that Theorems 26 and 26-T know of a transformer, and Lemmas 25 and 29.

A network here is L layers of h = x + Σ_heads W_V Σ_j α_j x_j, x' = h + W_2 ReLU(W_1 h +
b_1) + b_2, every parameter at most P in magnitude. With several heads d P, the gain of
one head's value map, is H d P; everything else is as for one. Everything that follows
depends on nothing else, so it is far above what a given network does: P stands for every
entry of every matrix.
"""

import dataclasses

from bounds.closed_form.approximation.statements import PAPER, upper_bound
from bounds.closed_form.domain import nonnegative, positive, whole
from bounds.interval import Interval, exp, interval, maximum
from bounds.result import Bound


@dataclasses.dataclass(frozen=True)
class NetworkShape:
    """Dimensions and sizes of an average-hard transformer, query and key biases included.

    Biases of queries, keys and values are weights of a coordinate that is 1, which counts
    in `width`; a factor 1/√d_k belongs to the queries, a head's output matrix to its
    values.

    Attributes:
        width: d.
        key_width: dk.
        hidden: m, neurons of a feed-forward block.
        layers: L.
        parameter: P >= 1, at least the magnitude of every parameter.
        heads: H.
    """

    width: int
    key_width: int
    hidden: int
    layers: int
    parameter: float
    heads: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "key_width", "hidden", "layers", "heads"):
            whole(name, getattr(self, name), 1)
        if positive("parameter", self.parameter) < 1:
            raise ValueError(f"parameter is {self.parameter}, expected at least 1")

    @property
    def growth(self) -> Interval:
        """G = (1 + H d P)(1 + m d P² + m P² + P), by which a layer's activations grow."""
        p, m = interval(self.parameter), self.hidden
        hidden = 1 + m * self.width * p**2 + m * p**2 + p
        return (1 + self._value_gain) * hidden

    @property
    def score_gain(self) -> Interval:
        """K1 = 6 d² dk P² G^{L-1}: twice the score error of an error, over x(n)."""
        size = 6 * self.width**2 * self.key_width * interval(self.parameter) ** 2
        return size * self.growth ** (self.layers - 1)

    @property
    def error_gain(self) -> Interval:
        """K2 = (1 + m d P²) max(1 + H d P, 2 H d P G^{L-1})."""
        value = self._value_gain
        attention = maximum(1 + value, 2 * value * self.growth ** (self.layers - 1))
        return (
            1 + self.hidden * self.width * interval(self.parameter) ** 2
        ) * attention

    @property
    def _value_gain(self) -> Interval:
        return self.heads * self.width * interval(self.parameter)


def activation_bound(shape: NetworkShape, embedding: float, layer: int) -> Bound:
    """Bound the activations after some layers of any attention.

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
    if depth > shape.layers:
        raise ValueError(f"layer is {layer}, expected at most {shape.layers}")
    value = shape.growth**depth * embedding_size(embedding)
    return upper_bound(
        value, f"|x^({depth})|_inf", ("weights sum to 1",), f"{PAPER}, Lemma 29"
    )


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
    left = interval(positive("gap", gap)) - shape.score_gain * x * eps
    if not left.a > 0:
        raise ValueError(
            f"error is {error}, expected below gap/(K1 x(n)): the order of the scores "
            "may change"
        )
    tail = exp(-left / positive("temperature", temperature))
    fresh = whole("length", length, 1) * x * tail
    return upper_bound(
        shape.error_gain * (eps + fresh),
        "|x^(l+1) - x'^(l+1)|_inf",
        (
            "every head is uniform, or tieless with the gap",
            "|x^(l) - x'^(l)|_inf <= error",
        ),
        f"{PAPER}, Lemma 25",
    )


def embedding_size(embedding: float) -> Interval:
    """x(n), if it is at least 1."""
    if positive("embedding", embedding) < 1:
        raise ValueError(
            f"embedding is {embedding}, expected at least 1: x(n) is the largest "
            "magnitude of an entry, or 1 if that is more"
        )
    return interval(embedding)
