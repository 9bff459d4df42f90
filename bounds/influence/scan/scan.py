"""`scan`: one question about many rows, and what is made of its answers."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from jax.sharding import Mesh

from bounds.influence.batch import of_each_input
from bounds.influence.callable import Callable as Function
from bounds.influence.problem import Watched
from bounds.influence.rounding import Rounding
from bounds.influence.scan.making import answer
from bounds.influence.scan.question import Question
from bounds.influence.scan.reductions import Reduce
from bounds.influence.substitution import Symbols
from bounds.numbers.kind import RTOL_EXACT
from bounds.rounding.measured_error import measure_error
from bounds.rounding.precision import Precision
from jax_models import Transformer
from jax_models.arguments import choose_name, expect_hook
from jax_models.run.evaluate import TieRule

Rows: TypeAlias = int | Sequence[int] | Literal["all"]


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
    rtol_exact: float = RTOL_EXACT,
    method: str = "auto",
    ties: TieRule = "error",
    dtype: Any = None,
    mesh: Mesh | None = None,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    precision: Precision | None = None,
    rounding: Rounding = "auto",
) -> Any:
    """Returns what every substitution does to one row, to many, or to all, exactly.

    The cell (i, s, j, t) is the change of entry t of what row j says where position i is
    replaced by symbol s, z_j(x with x_i := s)_t - z_j(x)_t, the position itself
    included. `compute_influence` gives the norm over t for one row j and leaves i = j out.

    Args:
        model: a transformer, or a `Callable`.
        tokens: integers in [0, V) [n]; or a list of such inputs of any lengths.
        symbols: substitutes, in the order of the table; by default all that the model's
            `substitutable` allows. Or [P, K] padded with -1: row p are those of the p-th
            of P positions.
        positions: positions that are changed, in the order of the table; all by default.
        rows: the row that is watched, negative counting from the end; a list of them; or
            "all". By default that of a classifier's head, else the last. One row has no
            axis, nor has a target that is of many rows itself.
        target: as in `compute_influence`.
        target_symbols: the entries of a target with an entry for each symbol ("logits",
            "log_probabilities") that alone count.
        reduce: None leaves a target of one entry signed and takes the Euclidean norm of
            others; "none" keeps the target's axis, signed; "max" is the largest absolute
            value over substitutes and entries; "mean" the mean over substitutes of what
            None gives; `Frobenius` the map of a categorical Jacobian, where rows="all" is
            all positions at which anything is replaced; or a function of the changes of a
            position with the axes (symbol, row, target) that there are, 0 where nothing is
            replaced.
        diagonal: False makes 0 of the cells whose position is the row.
        rtol_exact: the scan is called "exact" where the rounding radius of its largest
            absolute value is at most this times it, and "enclosure" where it is more.
        method: "auto" (the cheapest by count), "incremental" (change propagation),
            "exhaustive" (a pass for each), or "partial" (passes of what can move and is
            read).
        ties: what to do where rounding decides a hard-attention winner: "error", "warn"
            or "ignore".
        dtype: asserts the float type.
        mesh: devices to share the substitutions out over (`device_mesh`).
        memory_limit: bytes that blocks of substitutions may take on a device.
        progress: called with (substitutions done, all) after every block.
        precision: as in `compute_influence`: "bfloat16" or "float16" is estimated, with
            `Scan.measured_error` beside it.
        rounding: as in `compute_influence`; of "top" whole positions with the largest
            cells have radii, of a map none.

    Returns:
        A `Scan`; of a list of inputs a list of them.

    Raises:
        InputError: for anything in the question that does not fit the model, symbols that
            are those that stand there, and a table that does not fit the memory of the
            machine.
        TieError: for an ambiguous tie under ties="error".
    """
    options: dict[str, Any] = {
        "symbols": symbols,
        "positions": positions,
        "rows": rows,
        "target": target,
        "target_symbols": target_symbols,
        "reduce": reduce,
        "diagonal": diagonal,
        "rtol_exact": rtol_exact,
        "dtype": dtype,
        "mesh": mesh,
        "memory_limit": memory_limit,
        "precision": precision,
    }
    started = time.perf_counter()
    choose_name("ties", ties, get_args(TieRule))
    choose_name("rounding", rounding, get_args(Rounding))
    expect_hook("progress", progress)
    asked = Question.ask(model, tokens, **options)
    asked.require_substitutions()
    found = answer(asked, method, ties, progress, rounding)
    if asked.problem.precision is not None:
        found = dataclasses.replace(found, measured_error=measure_error(asked.problem))
    return dataclasses.replace(found, seconds=time.perf_counter() - started)
