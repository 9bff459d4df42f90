"""From weights to values: what an error of attention weights does to the output."""

from bounds.closed_form.approximation.statements import PAPER, upper_bound
from bounds.closed_form.domain import nonnegative
from bounds.interval import interval, minimum
from bounds.result import Bound


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
    return upper_bound(
        value,
        "|sum_j (alpha_j - beta_j) v_j|",
        ("alpha and beta sum to 1", "the values are within a range of width spread"),
        f"{PAPER}, value transfer",
    )
