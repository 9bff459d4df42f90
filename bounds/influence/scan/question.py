"""A checked scan: its substitutions, watched rows and entries, and reduction."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bounds.influence.callable import Callable
from bounds.influence.choice import Choice, choose_method
from bounds.influence.exhaustive import EXHAUSTIVE
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.method import Way
from bounds.influence.partial import PARTIAL
from bounds.influence.reading import Reading
from bounds.influence.request import InfluenceRequest
from bounds.influence.run import Run
from bounds.influence.scan.layout import Layout
from bounds.influence.scan.reductions import (
    NAMED,
    Function,
    Reduce,
    Reduction,
    Table,
    require_table,
)
from bounds.influence.scan.watched import (
    chosen_entries,
    watch_rows,
    watched_width,
)
from bounds.influence.shared_base import SharedBase
from bounds.influence.substitution import Symbols
from bounds.influence.targets.table import Watched, check_head_row
from bounds.influence.vanishing import refuse_vanishing_rows
from bounds.rounding.precision import Precision
from jax_models import InputError, Transformer
from jax_models.arguments import (
    choose_name,
    expect_kind,
)

METHODS = (INCREMENTAL, EXHAUSTIVE, PARTIAL)
METHOD_NAMES = tuple(method.name for method in METHODS)
AXES = ("position", "symbol", "row", "target")


@dataclasses.dataclass(frozen=True)
class Question:
    """A checked scan; `ask` makes it."""

    request: InfluenceRequest
    layout: Layout
    reduction: Reduction
    alone: bool  # there is no axis of rows
    of_row: bool  # the watched quantity belongs to one row each
    width: int  # entries of the watched quantity that count
    target_symbols: Int[np.ndarray, "classes"] | None  # if entries have some
    diagonal: bool  # cells whose position is the row count

    @classmethod
    def ask(
        cls,
        model: Transformer | Callable,
        tokens: Any,
        *,
        symbols: Symbols | None = None,
        positions: Sequence[int] | None = None,
        rows: Any = None,
        target: Watched = "activation",
        target_symbols: Sequence[int] | None = None,
        reduce: Reduce = None,
        diagonal: bool = True,
        dtype: Any = None,
        run: Run | None = None,
        shared: SharedBase | None = None,
        precision: Precision | None = None,
    ) -> "Question":
        """Checks a scan's arguments, which are those of `scan`."""
        if not isinstance(model, Transformer | Callable):
            raise InputError(
                f"a scan is of a Transformer or a bounds.Callable, not of a "
                f"{type(model).__name__}; wrap a function in bounds.Callable"
            )
        expect_kind("diagonal", diagonal, bool, "True or False")
        request = InfluenceRequest.ask(
            model,
            tokens,
            target=target,
            symbols=symbols,
            positions=positions,
            include_query=True,
            dtype=dtype,
            run=run,
            shared=shared,
            precision=precision,
        )
        reduction = _reduction(reduce)
        every = isinstance(rows, str) and rows == "all"
        if every and reduction.square and positions is None:
            positions = np.unique(request.position).tolist()
            if symbols is not None and np.ndim(symbols) == 2:
                symbols = np.asarray(symbols)[positions]
        request, alone = watch_rows(
            request, rows, positions if reduction.square else None
        )
        if isinstance(model, Transformer):
            at = request.rows.tolist()
            check_head_row(model, request.target, at, request.tokens.size)
        refuse_vanishing_rows(request)
        width, of_row = watched_width(request)
        if not of_row and (not alone or rows is not None):
            raise InputError(
                f"rows = {rows!r}, but {request.model} says one thing of an input, not one "
                "of each row; leave rows out"
            )
        if not of_row and reduction.square:
            raise InputError(
                f"reduce = {reduce!r} is over pairs of a position and a row, and what is "
                "watched is of no one row; give another reduce"
            )
        allowed = range(model.vocab_size)
        if isinstance(model, Transformer) and model.substitutable is not None:
            allowed = model.substitutable
        chosen, names = chosen_entries(request.target, target_symbols, width)
        layout = Layout.of(
            request, symbols, positions, allowed, _symbols_of(model, names, width)
        )
        width = width if chosen is None else len(chosen)
        reduction.check(layout, width)
        if isinstance(reduction, Function):  # it is given the axes that there are
            apply = reduction.apply
            reduction = Function(lambda x: apply(trimmed(x, AXES[1:], alone, width)[0]))
        reading = Reading(reduction.kind, chosen)
        request = dataclasses.replace(request, reading=reading)
        axes = alone, of_row, width, names
        return cls(request, layout, reduction, *axes, diagonal)

    def part(self, start: int, stop: int) -> "Question":
        """The scan of positions [start, stop); of a map, their table of changes."""
        layout, kept = self.layout.only(slice(start, stop))
        request = dataclasses.replace(self.request, pairs=self.request.pairs.only(kept))
        part = dataclasses.replace(self, request=request, layout=layout)
        if not self.reduction.square:
            return part
        # A map is made of the whole table, its diagonal included.
        return dataclasses.replace(part, reduction=Table(by_target=True), diagonal=True)

    def require_substitutions(self) -> None:
        """Refuses a scan in which nothing is replaced."""
        if not len(self.request.pairs):
            raise InputError(
                "nothing can be substituted: at every position that is changed there are "
                "no symbols but the one that stands there; name other symbols or positions"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the reading of one substitution: (rows,) or (rows, classes)."""
        rows = self.request.rows.size if self.of_row else 1
        return (rows, self.width) if self.reduction.by_target else (rows,)

    def plan(self, method: Way | str) -> Choice:
        """Chooses the method; refuses a table beyond the memory."""
        by_symbol = self.layout.symbols.shape[1:] if self.reduction.by_symbol else ()
        made = self.shape if self.reduction.by_symbol else self.shape[:1]
        require_table("the table", len(self.layout.positions), *by_symbol, *made)
        return choose_method(method, self.request, METHODS)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the result."""
        return trimmed(
            np.empty((1,) * len(self.made_axes)), self.made_axes, self.alone, self.width
        )[1]

    @property
    def made_axes(self) -> tuple[str, ...]:
        """Names of the axes of the reduction, those of length 1 included."""
        made = self.reduction
        has = {"symbol": made.by_symbol, "target": made.by_symbol and made.by_target}
        return tuple(
            x
            for x in AXES
            if has.get(x, x == "position" or not isinstance(made, Function))
        )

    def zeroed(self, row: int) -> Bool[np.ndarray, "rows"]:
        """Watched rows that stay 0 for the position at `row` of the table."""
        whole = self.diagonal or self.reduction.square
        if whole or not self.of_row:
            return np.zeros(self.shape[0], bool)
        return self.layout.diagonal[row]


def trimmed(
    array: np.ndarray, axes: Sequence[str], alone: bool, width: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Drops the axis of a single row and that of a single entry, and their names."""
    gone = {"row"} if alone else set()
    gone |= {"target"} if width == 1 else set()
    array = array.squeeze(tuple(i for i, x in enumerate(axes) if x in gone))
    return array, tuple(x for x in axes if x not in gone)


def _symbols_of(
    model: Transformer | Callable, names: Int[np.ndarray, "classes"] | None, width: int
) -> Int[np.ndarray, "classes"] | None:
    """Symbols of a target's entries; None for classes and for a row's coordinates."""
    if isinstance(model, Transformer):
        return names if model.classes == model.vocab_size else None
    if width != model.vocab_size:
        return None
    return np.arange(width) if names is None else names


def _reduction(reduce: Reduce) -> Reduction:
    """Reduction of a name, a function, or a `Reduction`."""
    if isinstance(reduce, Reduction):
        return reduce
    if callable(reduce):
        return Function(reduce)
    if reduce is not None:
        choose_name("reduce", reduce, tuple(x for x in NAMED if x is not None))
    return NAMED[reduce]
