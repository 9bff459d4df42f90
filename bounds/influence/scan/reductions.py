"""What is made of a scan: tables of all cells, or one number of each position and row.

A reduction takes the substitutions of one position at a time. Shapes: P positions, K
symbols, k those that are substituted at one, r rows (1 where there is no such axis), c
what is watched of each.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np

from bounds.influence.reading import Kind
from bounds.influence.scan.layout import Layout
from jax_models import InputError
from jax_models.run.device_memory import require_memory

# Of one position: its row p, the columns that are filled [k], what is read of them
# [k, r, ...].
Piece: TypeAlias = tuple[int, np.ndarray, np.ndarray]


class Reduction(abc.ABC):
    """What becomes of the substitutions of every position. Final ones are values."""

    # What is read of each on the device.
    kind: Kind = "norm"
    # Whether it is of each symbol, and of each entry of the target.
    by_symbol = False
    by_target = False
    # Whether lower ends are at least 0.
    positive = False
    # Whether it is of pairs of positions, those of one with itself left at 0.
    square = False

    def check(self, layout: Layout, width: int) -> None:  # noqa: B027
        """Refuses what it cannot be made of.

        Args:
            layout: positions, symbols and rows.
            width: c.

        Raises:
            InputError: naming what is amiss.
        """

    @abc.abstractmethod
    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Returns it.

        Args:
            layout: positions, symbols and rows.
            shape: of what is read of one substitution, (r,) or (r, c); of a table any.
            pieces: gives all positions, as often as it is called.
        """


@dataclasses.dataclass(frozen=True)
class Table(Reduction):
    """All cells [P, K, r], or with the target's axis too [P, K, r, c]."""

    by_target: bool = False
    by_symbol = True

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """Returns what is read."""
        return "signed" if self.by_target else "norm"

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Returns the cells, NaN where nothing is substituted."""
        values = np.full((*layout.cells.shape, *shape), np.nan)
        for row, columns, found in pieces():
            values[row, columns] = found
        return values


@dataclasses.dataclass(frozen=True)
class Largest(Reduction):
    """The largest absolute value over substitutes and the target's entries [P, r]."""

    kind = "largest"
    positive = True

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Returns maxima, NaN where nothing is substituted."""
        return _of_each(layout, shape, pieces, lambda found: found.max(axis=0))


@dataclasses.dataclass(frozen=True)
class Mean(Reduction):
    """The mean over substitutes: of changes of a scalar, of norms of a vector [P, r]."""

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Returns means, NaN where nothing is substituted."""
        return _of_each(layout, shape, pieces, lambda found: found.mean(axis=0))


@dataclasses.dataclass(frozen=True)
class Function(Reduction):
    """One's own function of the signed changes of a position.

    Attributes:
        apply: From changes [K, r, c], 0 where nothing is substituted, to an array of one
            shape for all positions.
    """

    apply: Callable[[np.ndarray], Any]
    kind = "signed"
    by_target = True

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Returns what the function says, NaN where nothing is substituted."""
        made: dict[int, np.ndarray] = {}
        for row, columns, found in pieces():
            changes = np.zeros((layout.cells.shape[1], *shape))
            changes[columns] = found
            made[row] = _as_numbers(self.apply(changes))
            first = next(iter(made.values()))
            if made[row].shape != first.shape:
                raise InputError(
                    f"reduce returned arrays of shape {first.shape} and {made[row].shape};"
                    " expected one shape for all positions"
                )
        shape = next(iter(made.values())).shape if made else ()
        values = np.full((len(layout.positions), *shape), np.nan)
        for row, one in made.items():
            values[row] = one
        return values


def _as_numbers(returned: Any) -> np.ndarray:
    """What one's own function returned, as an array."""
    try:
        numbers = np.asarray(returned)
    except ValueError:  # lists of different lengths
        numbers = np.asarray(None)
    if numbers.dtype.kind not in "biuf":
        raise InputError(
            f"reduce returned a {type(returned).__name__}, which is no array of numbers; "
            "expected one, of the same shape for all positions"
        )
    return numbers.astype(np.float64)


NAMED: dict[str | None, Reduction] = {
    None: Table(),
    "none": Table(by_target=True),
    "max": Largest(),
    "mean": Mean(),
}
Reduce: TypeAlias = (
    Literal["none", "max", "mean"] | Reduction | Callable[[Any], Any] | None
)


def _of_each(
    layout: Layout,
    shape: tuple[int, ...],
    pieces: Callable[[], Iterable[Piece]],
    function: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Values [P, r] of a function of each position."""
    values = np.full((len(layout.positions), *shape), np.nan)
    for row, _, found in pieces():
        values[row] = function(found)
    return values


def bytes_of(*shape: int) -> float:
    """Returns what values of a shape take, with both their ends."""
    return 3 * 8 * float(np.prod([float(x) for x in shape]))


def require_table(what: str, *shape: int) -> None:
    """Refuses a table that the machine has no memory for, with its bytes."""
    require_memory(f"{what} of {' x '.join(map(str, shape))}", bytes_of(*shape))
