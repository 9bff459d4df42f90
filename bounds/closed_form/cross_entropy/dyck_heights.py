"""How often a bracket is open after n symbols of DYCK, enclosed.

With N(n, h) = (h+1)/(n+1) C(n+1, (n-h)/2) walks from 0 to h that stay >= 0 and
r = p/q, P(H_n = h) ~ N(n, h) r^{h/2} over h = n mod 2, given at least n symbols; the last
step went down with probability g(h) = (h+2)(n-h)/(2n(h+1)). Neighbouring terms have the
ratio r (h+3)/(h+1) (n-h)/(n+h+4), which falls as h grows: summed outwards from anywhere,
what is left out is less than a geometric series.
"""

import dataclasses

from bounds.closed_form.cross_entropy.reading import probability
from bounds.closed_form.domain import whole
from bounds.interval import Interval, hull, interval

# Terms below this share of the largest are left to the geometric series.
_NEGLIGIBLE = 2.0**-120


@dataclasses.dataclass(frozen=True)
class HeightShares:
    """Enclosures of two probabilities, given at least n symbols.

    Attributes:
        closing: P_0(n) = P(x_n closes, H_n > 0).
        open: P(H_n > 0).
    """

    closing: Interval
    open: Interval


def height_shares(up_probability: float, length: int) -> HeightShares:
    """Enclose P_0(n) and P(H_n > 0).

    P_0(n) = Σ_{h>=1} P(H_n = h) (h+2)(n-h)/(2n(h+1)).

    Args:
        up_probability: p in (0, 1).
        length: n >= 1. The cost is O(√n).

    Returns:
        The two.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: P_0 in the proof for 2DYCK.

    >>> float(height_shares(0.5, 2).closing.b)
    0.0
    """
    p = probability("up_probability", up_probability)
    n = whole("length", length, 1)
    odds = p / (1 - p)
    start = _start(n, up_probability)
    total = rest = ground = closing = interval(0)
    for direction in (2, -2):
        height, term = start, interval(1)
        while True:
            # The downward sum starts below the term that the upward one began with.
            if direction > 0 or height < start:
                total += term
                down = interval((height + 2) * (n - height)) / (2 * n * (height + 1))
                ground += term if height == 0 else 0
                closing += term * down if height else 0
            height += direction
            if not 0 <= height <= n:
                break
            near = height - 2 if direction > 0 else height
            ratio = odds * ((near + 3) * (n - near)) / ((near + 1) * (n + near + 4))
            growth = ratio if direction > 0 else 1 / ratio
            term *= growth
            if term.b < _NEGLIGIBLE and growth.b < 1:
                rest += term / (1 - growth)
                break
    # What is left out adds to the whole, and to each part between nothing and as much.
    return HeightShares(
        closing=hull(closing / (total + rest), (closing + rest) / total),
        open=1 - hull(ground / (total + rest), (ground + rest) / total),
    )


def _start(n: int, up_probability: float) -> int:
    """The height of the largest term, or one near it, of the parity of n."""
    odds = up_probability / (1 - up_probability)
    low, high = 0, n // 2
    while low < high:
        middle = (low + high) // 2
        h = n % 2 + 2 * middle
        if odds * (h + 3) / (h + 1) * (n - h) > n + h + 4:
            low = middle + 1
        else:
            high = middle
    return n % 2 + 2 * low
