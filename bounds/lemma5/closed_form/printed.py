"""The constants of Lemma 5 as Hahn 2020 prints them, in two readings of the norm bound F.

docs/lemma5-audit.md has the false steps of the printed proof: what it concludes is a
`Claim` on the change dy_j^(k) at position j of n after layer k of L, each of H heads. D is
the distance of the embeddings that are exchanged at position i. C_att is the Lipschitz
constant of a logit per unit: mu + c/F for a dot product, and max(m1, m2) for additive
scores, A is F² C_att and 2 F C_att, and a weight at most e^A/(e^A + (n - 1) e^{-A}); L_fact
satisfies |dy'| <= L_fact (|dy| + Σ_h |da_h|). `printed` is literal, F = 2 C_fact^L (|p_j| +
|v_j|), |p_j| + |v_j| the maximum over positions and symbols, C_fact >= 1 a growth constant,
F_k <= C_fact^k (|p| + |v|), that covers biases and the concatenation of the heads (else F
is no bound); `printed_tight` takes for F the true bound on the norms.
"""

import dataclasses
from collections.abc import Sequence

from bounds.lemma5.closed_form.layer_constants import Additive, DotProduct, Score
from bounds.numbers.bound import Claim, Sense
from bounds.numbers.interval import Interval, exp, interval, log_upper, maximum
from bounds.numbers.statements import (
    UNMASKED_HYPOTHESES,
    nonnegative,
    others,
    own,
    several,
    whole,
)


@dataclasses.dataclass(frozen=True)
class PrintedConstants:
    """The printed constants of one model; build with `printed` or `printed_tight`.

    Attributes:
        reading: Reading of F, "printed" (literal) or "printed_tight".
        norm: F, an interval (unbounded exponents: it may exceed every float).
        half_oscillation: A, an interval, nats.
        output_lipschitz: L_fact.
        num_heads: H.
    """

    reading: str
    norm: Interval
    half_oscillation: Interval
    output_lipschitz: float
    num_heads: int

    @property
    def constant(self) -> Interval:
        """C = 2 (1 + e^{2A} + L_fact), an interval."""
        lipschitz = interval(self.output_lipschitz)
        return 2 * (1 + exp(2 * self.half_oscillation) + lipschitz)

    def others(self, layer: int, length: int, distance: float) -> Claim:
        """The claim |dy_j^(k)| <= H^k C^{2k} D/n for j != i."""
        # True by closed form C2 literally (docs/lemma5-audit.md), and tight for additive
        # scores; tight for a dot product where 3 (1 + A) <= 16 (1 + e^{-2A}), that is up to
        # A = 4.334, and false for some models with large A.
        k, n = whole("layer", layer, 1), whole("length", length, 2)
        return self._claim(self.num_heads**k * self._power(k, distance) / n, others(k))

    def own(self, layer: int, distance: float) -> Claim:
        """The claim |dy_i^(k)| <= C^{2k} D, false for many heads."""
        # For one head as true as `others`; for many H^k is missing.
        k = whole("layer", layer, 1)
        return self._claim(self._power(k, distance), own(k))

    def _power(self, layer: int, distance: float) -> Interval:
        d = interval(nonnegative("distance", distance))
        return self.constant ** (2 * layer) * d

    def _claim(self, value: Interval, quantity: str) -> Claim:
        return Claim(
            log_value=log_upper(value),
            sense=Sense.UPPER,
            quantity=quantity,
            hypotheses=UNMASKED_HYPOTHESES,
            source=f"Hahn 2020, Lemma 5, reading {self.reading}",
        )


def printed(
    *,
    scores: Sequence[Score],
    embedding_norm: float,
    growth: float,
    output_lipschitz: float,
    num_heads: int,
    num_layers: int,
) -> PrintedConstants:
    """Build the printed constants, F read literally: F = 2 C_fact^L (|p| + |v|).

    Args:
        scores: Norms of the logits, of every layer and head.
        embedding_norm: max_j |p_j| + max_σ |v_σ|, over positions and symbols.
        growth: C_fact >= 1 with F_k <= C_fact^k F_0 for k < L, biases included.
        output_lipschitz: L_fact.
        num_heads: H, the largest number of heads of a layer.
        num_layers: L.

    Returns:
        The constants.

    Raises:
        ValueError: A number is out of its range; a growth below 1 is refused because
            the printed F then bounds nothing.

    Source:
        Hahn 2020, proof of Lemma 5.
    """
    growth = nonnegative("growth", growth)
    if growth < 1:
        raise ValueError(
            f"growth is {growth}, expected at least 1: below it the printed F shrinks "
            "with the number of layers and no longer bounds the embeddings"
        )
    depth = whole("num_layers", num_layers, 1)
    embedding = interval(nonnegative("embedding_norm", embedding_norm))
    norm = 2 * interval(growth) ** depth * embedding
    return _constants("printed", norm, scores, output_lipschitz, num_heads)


def printed_tight(
    *, scores: Sequence[Score], norm: float, output_lipschitz: float, num_heads: int
) -> PrintedConstants:
    """Build the printed constants with F a true bound on the norms of activations.

    Args:
        scores: Norms of the logits, of every layer and head.
        norm: F, bound on |y_w^(k)| over all inputs and positions, k < L.
        output_lipschitz: L_fact.
        num_heads: H, the largest number of heads of a layer.

    Returns:
        The constants.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, proof of Lemma 5.
    """
    tight = interval(nonnegative("norm", norm))
    return _constants("printed_tight", tight, scores, output_lipschitz, num_heads)


def _constants(
    reading: str,
    norm: Interval,
    scores: Sequence[Score],
    output_lipschitz: float,
    num_heads: int,
) -> PrintedConstants:
    scores = several("scores", scores, DotProduct, Additive, least=1)
    return PrintedConstants(
        reading=reading,
        norm=norm,
        half_oscillation=maximum(*(s.printed_logit_bound(norm) for s in scores)),
        output_lipschitz=nonnegative("output_lipschitz", output_lipschitz),
        num_heads=whole("num_heads", num_heads, 1),
    )
