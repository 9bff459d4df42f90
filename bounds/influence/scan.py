"""`scan`: the changes of rows by every substitution, or a reduction of them."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from bounds.influence.answer import answer, of_each_input
from bounds.influence.build import TableOptions, build_request
from bounds.influence.choice import precision_of
from bounds.influence.inputs.callable import Callable as Function
from bounds.influence.method import Rounding, Run, Way, check_run
from bounds.influence.substitution import Symbols
from bounds.influence.table.reductions import Reduce
from bounds.influence.targets.table import Watched
from jax_models import Transformer
from jax_models.run.evaluate import TieRule

Rows: TypeAlias = int | Sequence[int] | Literal["all", "own"]


@of_each_input
def scan(
    model: Transformer | Function,
    tokens: Any,
    *,
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    rows: Rows | None = None,
    target: Watched = "activation",
    target_symbols: Sequence[int] | None = None,
    reduce: Reduce = None,
    diagonal: bool = True,
    method: Way | str = "auto",
    ties: TieRule = "error",
    rounding: Rounding = "auto",
    dtype: Any = None,
    run: Run | None = None,
) -> Any:
    """Computes exactly the change of one row, many or all rows by every substitution.

    The cell (i, s, j, t) is the change of entry t of the target at row j where position i
    is replaced by symbol s, z_j(x with x_i := s)_t - z_j(x)_t, the position itself
    included. `compute_influence` gives the norm over t for one row j and leaves i = j out.

    Args:
        model: a transformer, or a `Callable`.
        tokens: integers in [0, V) [n]; or many inputs, [K, n] or a list of any lengths.
        symbols: substitutes, in the order of the table; by default all that the model's
            `substitutable` allows. Or [P, K] padded with -1: row p has those of the p-th
            of P positions.
        positions: positions that are changed, in the order of the table; all by default.
        rows: the watched row, negative counting from the end; a list of rows; "all"; or
            "own", at each position its own row. By default that of a classifier's head,
            else the last. One row has no axis, nor have own rows, nor a target that is
            itself of many rows.
        target: as in `compute_influence`.
        target_symbols: the only entries that count, of a target with an entry for each
            symbol ("logits", "log_probabilities").
        reduce: None leaves a target of one entry signed and takes the Euclidean norm of
            others; "none" keeps the target's axis, signed; "max" is the largest absolute
            value over substitutes and entries; "mean" the mean over substitutes of the
            values that None gives; `Frobenius` the map of a categorical Jacobian, where
            rows="all" are all positions at which something is replaced; or a function of
            the changes of a position with the axes (symbol, row, target) that there are,
            0 where nothing is replaced.
        diagonal: False sets cells whose position is the row to 0.
        method: "auto" (the cheapest by count), or a name or value of "incremental"
            `Incremental()` (change propagation; with a precision it is estimated, and
            adds `Scan.measured_error`), "exhaustive" `Exhaustive()` (a pass for each), or
            "partial" `Partial()` (passes of the rows that can move and are read).
        ties: what to do where rounding decides a hard-attention winner: "error", "warn"
            or "ignore".
        rounding: as in `compute_influence`; with "top" whole positions with the largest
            cells have radii; a map has none.
        dtype: asserts the float type.
        run: devices, memory and progress (`Run`).

    Returns:
        A `Scan`; for many inputs a list of `Scan`s.

    Raises:
        InputError: an argument does not fit the model, all symbols are the input's own,
            or the table does not fit the memory of the machine.
        TieError: for an ambiguous tie under ties="error".
        TypeError: for a keyword that is now an option of a method or of `Run`.
    """
    run = check_run(run)
    request = build_request(
        model,
        tokens,
        target=target,
        symbols=symbols,
        positions=positions,
        table=TableOptions(rows, target_symbols, reduce, diagonal),
        dtype=dtype,
        run=run,
        precision=precision_of(method),
    )
    return answer(request, method, ties, run=run, rounding=rounding)
