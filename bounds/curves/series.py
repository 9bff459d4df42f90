"""Series of values that a figure draws against n, and lines of bounds with them.

A curve is the largest influence (change of an output by replacing one symbol) at each
length n; a mark is a drawn point, a decade a factor of ten. Lemma 5 (Hahn 2020) bounds
influences on all inputs of a length.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from bounds.influence.targets.base import PlainTarget
from bounds.store.table import Rows, Table

# Share of a value within which another at the same length would lie on its mark.
ALIKE = 0.03


@dataclasses.dataclass(frozen=True)
class Decades:
    """Line of one bound: its decimal logarithms at lengths, and its look."""

    legend: str
    look: Mapping[str, Any]  # keywords of Matplotlib's `plot`
    x: Shaped[np.ndarray, "points"]
    log10: Float[np.ndarray, "points"]


@dataclasses.dataclass(frozen=True)
class Gap:
    """Gap between a curve and Lemma 5's corrected bound; all but lengths in log10."""

    # Longest n that was measured and has a constant, with the largest influence there, None
    # where it is zero, and the constant.
    last: int
    exact: float | None
    corrected: float
    # n at which the bound on an attention weight is 1/2, at the longest length known. No
    # constant of Lemma 5 falls before that bound does: in a row of n logits that differ by at
    # most 2A it is 1/(1 + (n - 1) e^{-2A}), which is near 1 until n is about e^{2A} and falls
    # like 1/n from there. Trained or random, A is soon so large that this n is beyond any
    # length that can be run.
    half_weight: float
    # `half_weight` where a known length reaches it and the constant begins to fall.
    bend: float | None
    # Longest n at which the constant is known, and the constant there.
    end: int
    at_end: float

    @property
    def decades(self) -> float | None:
        """Decades from exact influence to corrected constant at n = `last`, or None."""
        return None if self.exact is None else self.corrected - self.exact


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one line: values y >= 0 at positions or lengths x, which may repeat."""

    label: str
    x: Shaped[np.ndarray, "points"]
    y: Float[np.ndarray, "points"]
    bounds: Sequence[Decades] = ()
    gap: Gap | None = None  # of the corrected constant, above these values


def merge(series: Sequence[Series]) -> list[Series]:
    """Series, those with equal points merged into one under all their labels."""
    groups: dict[Any, list[Series]] = {}
    for one in series:
        groups.setdefault((*one.x.tolist(), *one.y.tolist()), []).append(one)
    merged = []
    for first, *others in groups.values():
        # Their fits are the same too; the first one's stands behind all names.
        name, mark, fit = first.label.partition(" (")
        names = [name, *(one.label.removesuffix(mark + fit) for one in others)]
        bounds = next((one.bounds for one in (first, *others) if one.bounds), ())
        label = " and ".join(names) + mark + fit
        merged.append(dataclasses.replace(first, label=label, bounds=bounds))
    return merged


def free_places(series: Sequence[Series]) -> list[int]:
    """Sideways offset of each series that keeps its marks off those of earlier ones."""
    places: list[int] = []
    marks = [{*zip(*reduced(one.x, one.y), strict=True)} for one in series]
    for mine in marks:
        taken = {
            place
            for place, others in zip(places, marks, strict=False)
            for (n, y), (m, z) in itertools.product(mine, others)
            if n == m and abs(y - z) <= ALIKE * z
        }
        places.append(next(p for p in itertools.count() if p not in taken))
    return places


def reduced(
    x: Shaped[np.ndarray, "points"],
    y: Shaped[np.ndarray, "points"],
    reduce: Callable[[np.ndarray], Any] = np.max,
) -> tuple[Shaped[np.ndarray, "distinct"], Shaped[np.ndarray, "distinct"]]:
    """Distinct x, increasing, and the y at each x reduced to one, e.g. the largest."""
    keys = np.unique(x)
    return keys, np.array([reduce(y[x == key]) for key in keys])


def points(
    rows: Iterable[Mapping[str, Any]], name: str, x: str = "n"
) -> tuple[Float[np.ndarray, "points"], Float[np.ndarray, "points"]]:
    """Arrays of the columns `x` and `name`, from rows whose `name` is not None."""
    pairs = [(row[x], row[name]) for row in rows if row.get(name) is not None]
    across, up = np.array(pairs, float).reshape(-1, 2).T
    return across, up


@dataclasses.dataclass(frozen=True)
class RowPerLength(Rows):
    """A curve: a quantity against length, read by its table of one row per n.

    Attributes:
        label: The model's weighting, with the temperature if it is not 1, as in
            "softmax@inverse_log:1".
        target: Output whose change is measured: "activation" or "logits".
        measurements: Rows of measured values, one or several for each n.
    """

    label: str
    target: PlainTarget
    measurements: Table

    @property
    def table(self) -> Table:
        """Rows of the curve, one per n."""
        return self.measurements

    def _rows(self) -> tuple[Mapping[str, Any], ...]:
        return self.table.rows
