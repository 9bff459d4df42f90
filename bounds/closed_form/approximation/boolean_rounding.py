"""Lemma 9: a feed-forward block makes exact Booleans of approximate ones.

R(x) = (ReLU(x - t0) - ReLU(x - t1))/(t1 - t0) is 0 up to t0, 1 from t1 on and linear
between. The usual thresholds are 1/4 and 3/4. A gate g >= 1 subtracts from x as much as
makes both units silent: rounding and a case split in one hidden layer.

Lemma 27: rounding to many bits takes a wide or deep feed-forward network.

A ReLU network R -> R with L hidden layers of width m has at most (2m)^L affine pieces.
A piece that holds the least inputs of two neighbouring outputs would pass strictly
between them at a grid point in between: so there are as many pieces as outputs, if
every output but the largest has at least *two* preimages on the grid. Without that the
statement is false: half-to-even rounding of 3 bits to 2 has an output with one preimage.
If the largest has two as well, plateaus and steps alternate, and pieces are at least
2^{r+1} - 1.
"""

import itertools
from collections.abc import Sequence
from typing import Literal

from bounds.closed_form.approximation.statements import PAPER, lower_bound, upper_bound
from bounds.closed_form.domain import nonnegative, whole
from bounds.interval import exp, interval, log, maximum, minimum
from bounds.result import Bound

Preimages = Literal["all", "all_but_largest"]
LOWER_THRESHOLD = 0.25
UPPER_THRESHOLD = 0.75
# Up to here one gate makes 2x - 1/2 - 2g <= 0.
GATED_INPUT = 1.25


def rounding_width(bits: int, hidden_layers: int, preimages: Preimages) -> Bound:
    """Bound from below the width of a network that rounds monotonically to r bits.

    (2m)^L >= 2^r where every output but the largest has two preimages, and
    (2m)^L >= 2^{r+1} - 1 where all have.

    Args:
        bits: r >= 1, so that there are 2^r outputs.
        hidden_layers: L >= 1.
        preimages: Which outputs have at least two preimages on the grid of inputs; see
            `two_preimages`.

    Returns:
        A lower `Bound` on m.

    Raises:
        ValueError: A number is out of its domain, or the hypothesis is unknown.

    Source:
        docs/theory/softmax-approximation.md, section 11, Lemma 27.
    """
    outputs = 2 ** whole("bits", bits, 1)
    pieces = {"all": 2 * outputs - 1, "all_but_largest": outputs}
    if preimages not in pieces:
        raise ValueError(f"preimages is {preimages!r}, expected one of {list(pieces)}")
    depth = whole("hidden_layers", hidden_layers, 1)
    value = exp(log(interval(pieces[preimages])) / depth) / 2
    which = "every output" if preimages == "all" else "every output but the largest"
    return lower_bound(
        value,
        "the width of a ReLU network that rounds",
        (
            "the network agrees with the rounding on the whole grid",
            "the rounding is monotone onto 2^bits outputs",
            f"{which} has at least two preimages on the grid",
        ),
        f"{PAPER}, Lemma 27, corrected",
    )


def two_preimages(outputs: Sequence[float]) -> Preimages | None:
    """Find which form of Lemma 27 a rounding satisfies.

    Args:
        outputs: Its value at every grid point, in increasing order of the points.

    Returns:
        "all" or "all_but_largest", as `rounding_width` takes it; None where a smaller
        output has one preimage, so that the lemma says nothing.

    Raises:
        ValueError: The outputs decrease somewhere, or there are none.

    Source:
        docs/theory/softmax-approximation.md, section 11, Lemma 27.
    """
    if not len(outputs) or any(b < a for a, b in itertools.pairwise(outputs)):
        raise ValueError("outputs decrease, expected those of a monotone rounding")
    counts = [len(list(group)) for _, group in itertools.groupby(outputs)]
    if min(counts) >= 2:
        return "all"
    return "all_but_largest" if min(counts[:-1], default=0) >= 2 else None


def rounding_error(
    error: float, low: float = LOWER_THRESHOLD, high: float = UPPER_THRESHOLD
) -> Bound:
    """Bound how far a rounded approximate Boolean is from the Boolean.

    |R(x) - b| <= min(1, max(0, max(ε - t0, ε - (1 - t1))/(t1 - t0))) for |x - b| <= ε and
    b in {0, 1}: zero while ε <= min(t0, 1 - t1), and otherwise attained.

    Args:
        error: ε, how far x may be from the Boolean.
        low: t0, in [0, 1).
        high: t1, in (t0, 1].

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: ε is negative or NaN, or not 0 <= t0 < t1 <= 1.

    Source:
        docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    if not 0 <= low < high <= 1:
        raise ValueError(
            f"thresholds are low = {low}, high = {high}, expected 0 <= low < high <= 1"
        )
    eps, t0, t1 = (interval(x) for x in (nonnegative("error", error), low, high))
    over = maximum(eps - t0, eps - (1 - t1), interval(0)) / (t1 - t0)
    return upper_bound(
        minimum(over, interval(1)),
        "|R(x) - b|",
        ("b is 0 or 1 and |x - b| <= error", f"R has the thresholds {low} and {high}"),
        f"{PAPER}, Lemma 9",
    )


def gated_rounding_error(error: float, gates: int) -> Bound:
    """Bound how far gated rounding is from the Boolean, or from 0 behind a closed gate.

    R(x; g) = ReLU(2x - 1/2 - 2G) - ReLU(2x - 3/2 - 2G), G = Σ g: with G = 0 it is R(x),
    with G >= 1 it is 0 for every x <= 5/4.

    Args:
        error: ε: |x - b| <= ε for b in {0, 1} where G = 0, x <= 1 + ε where G >= 1.
        gates: G, the number of gates that are 1.

    Returns:
        An upper `Bound` on |R(x; g) - b| where G = 0, and on |R(x; g)| where G >= 1.

    Raises:
        ValueError: ε is negative or NaN, or G no integer of at least 0.

    Source:
        docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    closed = whole("gates", gates, 0)
    if not closed:
        return rounding_error(error)
    # The input exceeds 1/4 + G by at most 3/4 + ε - G, at slope 2.
    over = 2 * (interval(nonnegative("error", error)) + 1 - GATED_INPUT - (closed - 1))
    return upper_bound(
        minimum(maximum(over, interval(0)), interval(1)),
        "|R(x; g)|",
        ("x <= 1 + error", "the gates are exact Booleans, at least one of them 1"),
        f"{PAPER}, Lemma 9, gated",
    )
