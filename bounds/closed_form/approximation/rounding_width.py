"""Lemma 27: rounding to many bits takes a wide or deep feed-forward network.

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

from bounds.closed_form.approximation.statements import PAPER, lower_bound
from bounds.closed_form.domain import whole
from bounds.interval import exp, interval, log
from bounds.result import Bound

Preimages = Literal["all", "all_but_largest"]


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
