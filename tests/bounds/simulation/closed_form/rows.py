"""Random rows of scores, many at once, and how far softmax is from hard attention.

A row is given by its deficits (j* has 0), which float64 holds without cancellation; the
l1 distance is then 2r/(1 + r) with r a sum of exponentials. Exponents that matter are
below 750 and carry four roundings, sums fewer than 100: 750 * 4u + 100 u < 1e-12 = SLACK,
relatively. Terms that underflow are counted as zero, which only lowers the truth.
"""

import numpy as np

SLACK = 1e-12
SETTINGS = 200
ROWS = 100


def distance(deficits, temperature):
    """2r/(1 + r) of deficits [rows, n] with a zero at the winner."""
    with np.errstate(under="ignore"):
        odds = np.exp(-deficits / temperature).sum(axis=-1) - 1
        small = np.exp(-np.where(deficits == 0, np.inf, deficits) / temperature)
    # Without the winner's own 1, of which a small sum would lose its digits.
    odds = np.where(odds < 0.5, small.sum(axis=-1), odds)
    return 2 * odds / (1 + odds)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def extra(rng, shape):
    """What deficits are more than they must be: nothing in half of the rows."""
    more = rng.exponential(1.0, shape) * rng.integers(0, 2, shape)
    return more * rng.integers(0, 2, (*shape[:-1], 1))


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


class Ratios:
    """The largest truth/bound over all cases, none of them above 1."""

    def __init__(self):
        self.largest, self.cases, self.violations = 0.0, 0, 0

    def add(self, truth, bound):
        ratio = np.asarray(truth) / bound
        self.cases += ratio.size
        self.violations += int((ratio > 1 + SLACK).sum())
        self.largest = max(self.largest, float(ratio.max()))
