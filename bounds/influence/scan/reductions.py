"""Reductions of a scan: tables of all cells, or one number for each position and row.

A reduction takes the substitutions of one position at a time.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from bounds.influence.reading import Kind
from bounds.influence.scan.layout import Layout
from jax_models import InputError
from jax_models.run.device_memory import require_memory

# Of one position: its row in the table, the filled columns [k], and their readings
# [k, r, ...].
Piece: TypeAlias = tuple[int, np.ndarray, np.ndarray]


class Reduction(abc.ABC):
    """Reduction of the substitutions of every position."""

    # Reading of one substitution's change on the device.
    kind: Kind = "norm"
    # True where the result keeps the axis of symbols, and that of the target's entries.
    by_symbol = False
    by_target = False
    # True where values are never negative.
    positive = False
    # True for a map over pairs of positions, whose diagonal stays 0.
    square = False

    def check(self, layout: Layout, width: int) -> None:  # noqa: B027
        """Refuses layouts that it is not defined for."""

    @abc.abstractmethod
    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Computes the reduction; each call of `pieces` gives all positions anew."""


@dataclasses.dataclass(frozen=True)
class Table(Reduction):
    """All cells, or with `by_target` all cells and entries of the target."""

    by_target: bool = False
    by_symbol = True

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """Kind of the reading."""
        return "signed" if self.by_target else "norm"

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> Float[np.ndarray, "positions symbols rows *classes"]:
        """Fills the table; NaN where nothing is substituted."""
        values = np.full((*layout.cells.shape, *shape), np.nan)
        for row, columns, found in pieces():
            values[row, columns] = found
        return values


@dataclasses.dataclass(frozen=True)
class Largest(Reduction):
    """Largest absolute value over substitutes and the target's entries."""

    kind = "largest"
    positive = True

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> Float[np.ndarray, "positions rows"]:
        """Maxima; NaN where nothing is substituted."""
        return _of_each(layout, shape, pieces, lambda found: found.max(axis=0))


@dataclasses.dataclass(frozen=True)
class Mean(Reduction):
    """Mean over substitutes: of signed changes of a scalar, of norms of a vector."""

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> Float[np.ndarray, "positions rows"]:
        """Means; NaN where nothing is substituted."""
        return _of_each(layout, shape, pieces, lambda found: found.mean(axis=0))


@dataclasses.dataclass(frozen=True)
class Function(Reduction):
    """A caller's function of the signed changes of a position."""

    apply: Callable[[Float[np.ndarray, "symbols rows classes"]], Any]
    kind = "signed"
    by_target = True

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> np.ndarray:
        """Values of the function; NaN where nothing is substituted."""
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
    """Checks and converts the returned value of a caller's function."""
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
    """Applies a function to the readings of each position."""
    values = np.full((len(layout.positions), *shape), np.nan)
    for row, _, found in pieces():
        values[row] = function(found)
    return values


def bytes_of(*shape: int) -> float:
    """Bytes of values of a shape with both ends."""
    return 3 * 8 * float(np.prod([float(x) for x in shape]))


def require_table(what: str, *shape: int) -> None:
    """Refuses a table beyond the machine's memory."""
    require_memory(f"{what} of {' x '.join(map(str, shape))}", bytes_of(*shape))
