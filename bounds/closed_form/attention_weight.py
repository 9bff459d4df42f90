"""How large one softmax weight can be when logits stay within a range."""

from bounds.closed_form.domain import nonnegative, whole
from bounds.interval import Interval, exp, interval, log_upper
from bounds.result import Bound, Sense


def weight_bound(half_oscillation: Interval, visible: int) -> Interval:
    """1/(1 + (m - 1) e^{-2A}) on intervals; see `largest_weight`."""
    return 1 / (1 + (visible - 1) * exp(-2 * half_oscillation))


def largest_weight(half_oscillation: float, visible: int) -> Bound:
    """Bound every weight of a softmax over m logits that differ by at most 2A.

    α <= 1/(1 + (m - 1) e^{-2A}) <= e^{2A}/m, with equality on the left when one logit
    is 2A above all the others. Proof: α_w = 1/Σ_u e^{s_u - s_w}, one term is 1, the
    others are at least e^{-2A}; and (m - 1) e^{-2A} + 1 >= m e^{-2A}.

    Args:
        half_oscillation: A in nats.
        visible: m, the number of positions the row sees.

    Returns:
        An upper `Bound` on the weight.

    Raises:
        ValueError: A is negative or NaN, or m is below 1.

    Source:
        Hahn 2020, proof of Lemma 5, there relaxed to e^{2A}/(n - 1).

    >>> print(largest_weight(0.0, 4))
    largest attention weight of a row at most 0.25
    """
    a = interval(nonnegative("half_oscillation", half_oscillation))
    value = weight_bound(a, whole("visible", visible, 1))
    return Bound(
        log_value=log_upper(value),
        sense=Sense.UPPER,
        quantity="largest attention weight of a row",
        hypotheses=("the logits of the row differ by at most 2A",),
        source="Hahn 2020, proof of Lemma 5",
    )
