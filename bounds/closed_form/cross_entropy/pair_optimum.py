"""The least mean loss over a pair of inputs whose predictions must be alike.

One member, of share λ, is followed by END with probability p, the other never; besides
END there are two symbols, alike for both. Let t be the log-odds of END against the
other symbols on the first, t - ε on the second (which wants them as low as it may have
them). With sp(z) = ln(1 + e^z) the mean loss is at least

    φ(λ, ε) = min_t λ [p sp(-t) + (1 - p) sp(t)] + (1 - λ) sp(t - ε) + ln 2 (1 - λp),

and u = e^t is the positive root of a u² + b u + c = 0 with E = e^ε, a = 1 - λp,
b = λE + (1 - λ) - λp (1 + E), c = -λpE, which is the derivative set to zero.

Lemma E. φ is a convex, non-increasing function of ε: a minimum over (t, t') of a convex
loss under |t - t'| <= ε. So E φ(ε_x) >= φ(E ε_x), and φ lies above its tangent at ε = 0,
whose slope is -λ(1 - λ)p, the derivative of (1 - λ) sp(t - ε) at odds u = λp/(1 - λp).
"""

import math

from bounds.closed_form.cross_entropy.reading import entropy, probability
from bounds.closed_form.domain import nonnegative
from bounds.interval import Interval, exp, interval, log, sqrt


def pair_optimum(end_probability: float, share: Interval, closeness: float) -> Interval:
    """Enclose φ(λ, ε), the least mean loss over a pair in nats.

    λ [p sp(-t) + (1 - p) sp(t)] + (1 - λ) sp(t - ε) + ln 2 (1 - λp) at the optimal t.

    Args:
        end_probability: p in (0, 1), of END after the first member.
        share: λ in (0, 1), of the first member, as an interval.
        closeness: ε >= 0, nats; infinite where nothing is known.

    Returns:
        An interval around φ.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: the function φ of Theorem F.
    """
    p = probability("end_probability", end_probability)
    epsilon = nonnegative("closeness", closeness)
    certain = log(interval(2)) * (1 - share * p)
    if epsilon == math.inf:
        return share * entropy(p) + certain
    grown = exp(interval(epsilon))
    a = 1 - share * p
    b = share * grown + (1 - share) - share * p * (1 + grown)
    # c < 0, so there is one positive root; the product form loses no digits for b > 0.
    c = -share * p * grown
    u = -2 * c / (b + sqrt(b * b - 4 * a * c))
    first = p * log(1 + 1 / u) + (1 - p) * log(1 + u)
    return share * first + (1 - share) * log(1 + u / grown) + certain


def pair_tangent(end_probability: float, share: Interval, closeness: float) -> Interval:
    """Enclose the tangent of φ at ε = 0, a lower bound: φ(λ, 0) - λ(1 - λ) p ε.

    φ(λ, 0) = h(λp) + (1 - λp) ln 2.

    Args:
        end_probability: p in (0, 1).
        share: λ in (0, 1), as an interval.
        closeness: ε >= 0, finite.

    Returns:
        An interval around the tangent's value, which may be negative.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: Lemma E.
    """
    p = probability("end_probability", end_probability)
    epsilon = interval(nonnegative("closeness", closeness))
    level = entropy(share * p) + (1 - share * p) * log(interval(2))
    return level - share * (1 - share) * p * epsilon
