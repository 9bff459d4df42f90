"""Reductions of a scan: all cells, one number by position and row, or a function.

A scan is a table of changes of watched rows of a model's output by substitutions (a
symbol put in at a position). A reading is the number, or the numbers, read off the
change by one substitution; the readings of one position are reduced at a time. A
layout has the axes of the table, and a cell is one number of the table.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from bounds.influence.table.layout import AXES, Kind, Layout, Piece, Reduction
from jax_models import InputError
from jax_models.arguments import choose_name
from jax_models.run.device_memory import require_memory


@dataclasses.dataclass(frozen=True)
class Table(Reduction):
    """No reduction: a cell is a row's norm (signed if of one entry) or one entry."""

    kind: Kind = "norm"
    by_target: bool = False
    by_cell = True


@dataclasses.dataclass(frozen=True)
class OverSubstitutes(Reduction):
    """Reduction of readings over all substitutes at a position, to one per row."""

    over: Callable[..., np.ndarray]  # along an axis
    kind: Kind = "norm"
    positive: bool = False

    def make(
        self, layout: Layout, pieces: Callable[[], Iterable[Piece]]
    ) -> Float[np.ndarray, "positions rows"]:
        """Reduced readings by position and row; NaN at positions without substitute."""
        values = np.full((len(layout.positions), *layout.shape), np.nan)
        for row, _, found in pieces():
            values[row] = self.over(found, axis=0)
        return values


@dataclasses.dataclass(frozen=True)
class Function(Reduction):
    """A caller's function of the signed changes under all substitutes at a position."""

    apply: Callable[[Float[np.ndarray, "symbols *axes"]], Any]
    kind = "signed"
    by_target = True
    own_axes = True

    def make(
        self, layout: Layout, pieces: Callable[[], Iterable[Piece]]
    ) -> Float[np.ndarray, "..."]:
        """Function's values by position; NaN at positions without a substitute."""
        made: dict[int, Float[np.ndarray, ...]] = {}
        for row, columns, found in pieces():
            changes = np.zeros((layout.cells.shape[1], *layout.shape))
            # A function sees 0 where nothing is replaced, so that all positions have one
            # shape.
            changes[columns] = found
            trimmed, _ = layout.trim(changes, AXES[1:])  # the axes that there are
            made[row] = _as_numbers(self.apply(trimmed))
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


def _as_numbers(returned: Any) -> Float[np.ndarray, "..."]:
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
    "none": Table("signed", by_target=True),
    # Over the target's entries too.
    "max": OverSubstitutes(np.max, "largest", positive=True),
    # Of signed changes of a scalar, of norms of a vector.
    "mean": OverSubstitutes(np.mean),
}
Reduce: TypeAlias = (
    Literal["none", "max", "mean"] | Reduction | Callable[[Any], Any] | None
)


def as_reduction(reduce: Reduce) -> Reduction:
    """Reduction that a name, a function or a `Reduction` stands for."""
    if isinstance(reduce, Reduction):
        return reduce
    if callable(reduce):
        return Function(reduce)
    if reduce is not None:
        choose_name("reduce", reduce, tuple(x for x in NAMED if x is not None))
    return NAMED[reduce]


def bytes_of(*shape: int) -> float:
    """Bytes of an array of float64 values and of their lower and upper bounds."""
    # In floats, since a product of large sizes overflows as an integer.
    return 3 * 8 * float(np.prod([float(x) for x in shape]))


def require_table(what: str, layout: Layout) -> None:
    """Raises if a table of this layout does not fit the machine's memory."""
    by_symbol, made = layout.cells.shape[1:], layout.shape
    if not layout.reduction.by_cell:
        # A reduction holds the readings of one position at a time.
        by_symbol, made = (), made[:1]
    shape = len(layout.positions), *by_symbol, *made
    require_memory(f"{what} of {' x '.join(map(str, shape))}", bytes_of(*shape))
