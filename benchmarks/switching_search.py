"""Finding parameters of Theorem 8: a beam search over the depths of trees, in floats.

Of two lists of steps that end at the same depth, the one that leaves the larger fraction
φ is better whatever follows. So the best is kept for every depth, layer by layer, and of
the depths those with the largest φ / t, at most BEAM. Nothing here is certified:
`switching_proof` proves what is found, and a poor search makes a weak threshold, not a
false one.
"""

import math
from fractions import Fraction

import numpy as np

from bounds.numbers.statements import whole
from bounds.restriction.closed_form.switching_lemma import SwitchingStep

# p t runs through the multiples of 1/STEPS up to 3/5; the best are at 0.08 to 0.4.
STEPS = 400
BEAM = 16
# Orders of Lemma 7's sums that a search looks at: with r w < 6/5 the next is below 1e-9.
ORDERS = 24
# What one evaluation of B_h(s) for all p takes, and what a search and its proof may.
SECONDS_EACH = 2e-4
MOST_SECONDS = 30.0
# A tree deeper than this is a width whose exact tails take minutes.
WIDEST = 160

_Reached = dict[int, tuple[float, tuple[SwitchingStep, ...]]]


def search_steps(
    num_layers: int, num_heads: int, *, free: int = 1, steps: int = STEPS
) -> tuple[SwitchingStep, ...] | None:
    """Search the steps of Theorem 8 that give the smallest threshold.

    The depth that trees may have is doubled until the best stay away from it.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        free: F >= 1, the free bits that are needed in the end.
        steps: Resolution of p t, at least 2.

    Returns:
        L - 1 steps, an estimate of the best; None where the shape is too large for the
        time a search may take.

    Raises:
        ValueError: A number is too small.

    Source:
        docs/theory/hard-attention.md, section 6, Theorem 8.
    """
    layers = whole("num_layers", num_layers, 1)
    heads = whole("num_heads", num_heads, 1)
    free, steps = whole("free", free, 1), whole("steps", steps, 2)
    found, deepest = None, 16
    while affordable(layers, heads, deepest):
        found = _search(layers, heads, deepest, free, steps)
        if found is not None and all(step.depth < 0.8 * deepest for step in found):
            return found
        deepest *= 2
    return found


def affordable(layers: int, heads: int, deepest: int) -> bool:
    """Whether a search up to a depth, and the proof of what it finds, are quick.

    Returns:
        True where both take about MOST_SECONDS or less.

    Source:
        By definition.
    """
    widths = 1 + BEAM * max(0, layers - 2)
    narrow = layers <= 2 or deepest <= WIDEST
    return narrow and widths * heads * deepest * SECONDS_EACH <= MOST_SECONDS


def _search(
    layers: int, heads: int, deepest: int, free: int, steps: int
) -> tuple[SwitchingStep, ...] | None:
    best: _Reached = {1: (1.0, ())}
    shares: dict[int, np.ndarray] = {}
    for _ in range(layers - 1):
        reached: _Reached = {}
        for t, (fraction, path) in best.items():
            p = np.arange(1, 3 * steps // 5 + 1) / (steps * t)
            if t not in shares:
                shares[t] = deep_shares(t, heads, deepest, p)
            kept = p[:, None] * fraction - (heads + 1) * t * shares[t]
            choice = np.argmax(kept, axis=0)
            for new in range(1, deepest + 1):
                value = float(kept[choice[new], new])
                if value > 0 and (new not in reached or value > reached[new][0]):
                    star = Fraction(int(choice[new]) + 1, steps * t)
                    reached[new] = (value, (*path, SwitchingStep(star, new)))
        best = _promising(reached)
    if not best:
        return None
    costs = {
        t: ((heads + 1) * t + free - 1) / fraction for t, (fraction, _) in best.items()
    }
    return best[min(costs, key=lambda t: costs[t])][1]


def _promising(reached: _Reached) -> _Reached:
    """Returns the depths that no smaller one surpasses, those of the largest φ / t."""
    kept, largest = [], 0.0
    for t in sorted(reached):
        if reached[t][0] > largest:
            kept.append(t)
            largest = reached[t][0]
    kept.sort(key=lambda t: reached[t][0] / t, reverse=True)
    return {t: reached[t] for t in kept[:BEAM]}


def deep_shares(t: int, heads: int, deepest: int, p: np.ndarray) -> np.ndarray:
    """Estimate R of `deep_probability` for every p and every t' up to `deepest`.

    Args:
        t: Depth of the trees of the layer below.
        heads: H.
        deepest: The largest t'.
        p: [k].

    Returns:
        [k, deepest + 1], in floats.

    Source:
        docs/theory/hard-attention.md, section 6, Theorem 8.
    """
    tails = _tails(t, heads, deepest + 1, p)
    shares = np.zeros((len(p), deepest + 1))
    for j in range(min(t, ORDERS) + 1):
        weight = math.comb(t, j) * (1 - p) ** (t - j) * (2 * p) ** j
        left = np.maximum(0, np.arange(deepest + 1) + 1 - j)
        shares += weight[:, None] * tails[:, left]
    return shares


def _tails(width: int, heads: int, most: int, p: np.ndarray) -> np.ndarray:
    """B_H(s) of `depth_tails` [p, s], with the sums cut off at ORDERS."""
    last = min(width, ORDERS)
    orders = np.arange(last + 1)
    ratio = (2 * p / (1 + p))[:, None]
    weights = np.array([float(math.comb(width, j)) for j in orders]) * ratio**orders
    differences = np.array(
        [[math.comb(i, j) * (-1.0) ** (i - j) for i in orders] for j in orders]
    )
    # What rounding leaves of the differences: below it the plain sum decides.
    noise = 1e-16 * (weights * 2.0**orders).sum(axis=1)
    previous = np.zeros((len(p), most + 1))
    previous[:, 0] = 1
    for _ in range(heads):
        current = np.ones((len(p), most + 1))
        for s in range(1, most + 1):
            values = np.ones((len(p), last + 1))
            values[:, 0] = previous[:, s]
            j = np.arange(1, min(last, s - 1) + 1)
            deeper = (2.0**j - 1) * current[:, s - j] + previous[:, s - j]
            values[:, j] = np.minimum(1, deeper)
            plain = (weights * values).sum(axis=1)
            # einsum, not @: a threaded product waits longer than it computes here.
            rising = np.maximum(0, np.einsum("pj,ji->pi", values, differences))
            moebius = (weights * rising).sum(axis=1) + noise
            bound = np.minimum(np.minimum(plain, moebius), current[:, s - 1])
            current[:, s] = np.minimum(1, bound)
        previous = current
    return previous
