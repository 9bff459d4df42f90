"""Theorems 26 and 26-T: a temperature at which softmax simulates average-hard attention.

Where no non-uniform head has ties the error grows by 2 K2 a layer, from a source
n x e^{-γ/(2τ)}. With ties it grows by 2 K2 (1 + K1 x²/(4τ)), a polynomial in 1/τ, while
the source stays exponentially small in γ/τ: the same order of temperature. Both rest on
a gap γ(n); that it is positive for each n is trivial (Lemma 24: finitely many inputs),
and that says nothing of its rate.
"""

from bounds.closed_form.approximation.network_shape import (
    NetworkShape,
    embedding_size,
)
from bounds.closed_form.approximation.statements import (
    PAPER,
    TEMPERATURE,
    lower_bound,
)
from bounds.closed_form.domain import positive, whole
from bounds.interval import Interval, interval, log, maximum, minimum
from bounds.result import Bound

_SAME = "softmax replaces average-hard attention, all parameters stay"
_GAP = "gap is one of all non-uniform heads, rows and inputs of length n"


def simulation_temperature(
    shape: NetworkShape, *, embedding: float, gap: float, length: int, error: float
) -> Bound:
    """Compute a temperature at which softmax is within an error of tieless attention.

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
    start, gain, _ = _terms(shape, embedding, gamma, length, error)
    value = gamma / (2 * (start + shape.layers * gain))
    hypotheses = ("every head is uniform or has no ties", _GAP, _SAME)
    return lower_bound(value, TEMPERATURE, hypotheses, f"{PAPER}, Theorem 26")


def tied_simulation_temperature(
    shape: NetworkShape, *, embedding: float, gap: float, length: int, error: float
) -> Bound:
    """Compute a temperature at which softmax is within an error of average-hard attention.

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
    ties = maximum(interval(1), layers * shape.score_gain * x**2 / gamma)
    value = gamma / (4 * (start + layers * gain + layers * log(ties)))
    hypotheses = ("tied scores are equal as real numbers", _GAP, _SAME)
    return lower_bound(value, TEMPERATURE, hypotheses, f"{PAPER}, Theorem 26 with ties")


def _terms(
    shape: NetworkShape, embedding: float, gamma: Interval, length: int, error: float
) -> tuple[Interval, Interval, Interval]:
    """log(n x/E), log(2 K2) and x."""
    if positive("error", error) > 1:
        raise ValueError(f"error is {error}, expected at most 1")
    x = embedding_size(embedding)
    allowed = minimum(interval(error), gamma / (2 * shape.score_gain * x))
    start = log(whole("length", length, 1) * x / allowed)
    return start, log(2 * shape.error_gain), x
