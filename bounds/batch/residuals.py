"""What a formula leaves of the logarithms of times, learnt from cells that are alike.

    cov(r(x), r(y)) = a · share(x, y) + b · ρ^differ(x, y) · exp(-|x - y|² / 2ℓ²)

r is a Gaussian process: share is the part of the swept flags whose values are equal, differ
the number that are not, |x - y| the distance of the logarithms of the sizes. The first term
holds effects of single values, the second what several do together and how the formula errs
with size; where nothing alike was measured the prediction falls back to the formula. The
scales are those, of a small grid, under which the measurements are likeliest. Cells of equal
flags enter by their median.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

# Scales that are tried: variances of the logarithm of a time, and lengths in e-folds of size.
MAIN = (0.01, 0.1, 1.0, 4.0)
JOINT = (0.01, 0.1, 1.0)
NOISE = (0.003, 0.03, 0.3)
MISMATCH = (0.3, 0.8)
LENGTH = (1.0, 3.0, 10.0)
# Distinct cells that are learnt from; a solve costs the cube of them, for every scale.
MOST = 200
# Places that are compared with all of these at a time.
BLOCK = 1000


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a cell lies among those of its sweep: swept values and logarithms of sizes."""

    levels: tuple[str, ...]
    sizes: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Scales:
    """What the covariance is made of."""

    main: float
    joint: float
    noise: float
    mismatch: float
    length: float


@dataclasses.dataclass(frozen=True)
class Residuals:
    """Predictions from the places that were measured.

    Attributes:
        places: Of the measured cells [k].
        solved: Inverse covariance times what was measured [k].
        scales: Of the covariance.
    """

    places: tuple[Place, ...]
    solved: np.ndarray
    scales: Scales

    def at(self, places: Sequence[Place]) -> np.ndarray:
        """Returns what the logarithms of the times differ by from the formula's [m]."""
        if not self.places or not places:
            return np.zeros(len(places))
        found = [
            _covariance(self.scales, *_compare(places[k : k + BLOCK], self.places))
            @ self.solved
            for k in range(0, len(places), BLOCK)
        ]
        return np.concatenate(found)


def learn_residuals(places: Sequence[Place], measured: Sequence[float]) -> Residuals:
    """Returns predictions of what a formula leaves.

    Args:
        places: Of the measured cells, several at one place if they differ in their data.
        measured: Logarithms of measured time over the formula's.

    Returns:
        The predictions.
    """
    together: dict[Place, list[float]] = {}
    for place, value in zip(places, measured, strict=True):
        together.setdefault(place, []).append(value)
    chosen = list(together)[-MOST:]
    values = np.array([np.median(together[place]) for place in chosen])
    counts = np.array([len(together[place]) for place in chosen], float)
    compared = _compare(chosen, chosen)
    best: tuple[float, Residuals] | None = None
    for one in itertools.product(MAIN, JOINT, NOISE, MISMATCH, LENGTH):
        scales = Scales(*one)
        covariance = _covariance(scales, *compared) + np.diag(scales.noise / counts)
        factor = cho_factor(covariance, lower=True)
        solved = cho_solve(factor, values)
        likelihood = -0.5 * values @ solved - np.log(np.diag(factor[0])).sum()
        if best is None or likelihood > best[0]:
            best = likelihood, Residuals(tuple(chosen), solved, scales)
    assert best is not None
    return best[1]


def _compare(
    rows: Sequence[Place], columns: Sequence[Place]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns shares of equal values, numbers of others, squared distances [m, k]."""
    names = {
        level: k
        for k, level in enumerate({v for p in (*rows, *columns) for v in p.levels})
    }
    left, right = (
        np.array([[names[level] for level in place.levels] for place in some], int)
        for some in (rows, columns)
    )
    equal = left[:, None, :] == right[None, :, :]
    count = max(1, equal.shape[2])
    sizes, others = (
        np.array([p.sizes for p in some], float) for some in (rows, columns)
    )
    square = ((sizes[:, None, :] - others[None, :, :]) ** 2).sum(axis=2)
    differ = (~equal).sum(axis=2)
    return 1.0 - differ / count, differ, square


def _covariance(
    scales: Scales, share: np.ndarray, differ: np.ndarray, square: np.ndarray
) -> np.ndarray:
    near = scales.mismatch**differ * np.exp(-0.5 * square / scales.length**2)
    return scales.main * share + scales.joint * near
