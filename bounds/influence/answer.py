"""Answers of `compute_influence` and `scan` about one input or many.

A substitution replaces one token, its influence is the norm of the change of the
target, the watched quantity of the output; a scan is a table of such changes. A request
is a checked question about one input. A value is an influence, or an entry of a scan's
table; its ends are its lower and upper bound, both the value itself without a radius
(bound on its rounding error). A screen encloses values between ends and computes few.
Ties are near-equal scores of hard attention.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, ParamSpec, get_args

import numpy as np
from jaxtyping import Float, Int, Shaped

from bounds.influence.choice import Choice, Keep, choose_method
from bounds.influence.find import ends_of, find, has_top, top_moves, top_rows
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Done, Rounding, Run, Screen, Way
from bounds.influence.methods.proposed import Proposed
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures, Ends, Found, Influence, judge_ties
from bounds.influence.rounding import choose_rounding, hypotheses_of
from bounds.influence.screening.ladder import Screened
from bounds.influence.substitution import Substitutions
from bounds.influence.table.base_values import Base
from bounds.influence.table.result import Scan
from bounds.influence.vanishing import refuse_vanishing_rows
from bounds.numbers.kind import Kind, kind_of, kind_of_largest
from bounds.rounding.ranked import RANKED, measure_error
from jax_models.arguments import choose_name, expect_array, refuse_moved, refuse_unread
from jax_models.errors import InputError
from jax_models.run.evaluate import TieRule

P = ParamSpec("P")
NO_CHECKPOINT = "it is of Screened and Proposed, which keep their state in a file"
# The new place of keywords up to version 0.1.
MOVED_OF_BOTH = {
    "mesh": "run=bounds.Run(mesh=...)",
    "memory_limit": "run=bounds.Run(memory_limit=...)",
    "progress": "run=bounds.Run(progress=...)",
    "precision": "method=bounds.Incremental(precision=...)",
    "rtol_exact": "the constant bounds.numbers.kind.RTOL_EXACT, 1 %",
}
MOVED_OF_INFLUENCE = MOVED_OF_BOTH | {
    "checkpoint": "run=bounds.Run(checkpoint=...)",
    "rtol": "method=bounds.Screened(rtol=...)",
    "budget": "method=bounds.Screened(budget=...)",
    "propose": "method=bounds.Proposed(...)",
    "vocab_size": "model=bounds.Callable(..., vocab_size=...)",
    "radius": "model=bounds.Callable(..., radius=...)",
    "shared": "bounds.influence.build_request(..., shared=...)",
}


def of_each_input(ask: Callable[P, Any]) -> Callable[P, Any]:
    """Decorator: times a function of model and tokens, and maps it over many inputs."""

    # `ask` takes a model and one input; the options hold for all inputs.
    @functools.wraps(ask)
    def asked(model: Any, tokens: Any, **options: Any) -> Any:
        finds_maximum = ask.__name__ == "compute_influence"
        moved = MOVED_OF_INFLUENCE if finds_maximum else MOVED_OF_BOTH
        refuse_moved(ask.__name__, options, moved)
        if is_batch(tokens):
            if getattr(options.get("run"), "checkpoint", None) is not None:
                raise InputError(
                    "checkpoint keeps the state of one input, and tokens are many: ask "
                    "about each by itself, or leave checkpoint out"
                )
            return [asked(model, one, **options) for one in tokens]
        if len(shape := getattr(tokens, "shape", ())) > 2:
            raise InputError(
                f"tokens have shape {shape}; expected one sequence [n], or many: [K, n] "
                "or a list of sequences"
            )
        started = time.perf_counter()
        found: Any = ask(model, tokens, **options)  # pyright: ignore[reportCallIssue]
        return dataclasses.replace(found, seconds=time.perf_counter() - started)

    return asked  # pyright: ignore[reportReturnType]


def is_batch(tokens: Any) -> bool:
    """True for many inputs: [inputs, tokens], or a list of inputs of any lengths."""
    if isinstance(tokens, list | tuple) and tokens:
        return all(expect_array("tokens", one).ndim == 1 for one in tokens)
    return getattr(tokens, "ndim", None) == 2


def answer(
    request: InfluenceRequest,
    method: Way | str | Choice = "auto",
    ties: TieRule = "error",
    keep: Keep = "pairs",
    run: Run | None = None,
    rounding: Rounding = "auto",
) -> Any:
    """Computed answer to a request: an `Influence`, or a `Scan` if it has a table."""
    choose_name("ties", ties, get_args(TieRule))
    choose_name("rounding", rounding, get_args(Rounding))
    # A `Choice` may come from a request that differs in its input alone.
    run, choice = run or Run(), method
    if not isinstance(choice, Choice):
        choice = choose_method(choice, request, keep=keep)
        # With "auto" a caller cannot foresee whether a screen is chosen, so that a checkpoint
        # which nothing reads is no error there.
        if not isinstance(choice.way, Screen) and (method != "auto" or request.layout):
            refuse_unread("checkpoint", run.checkpoint, None, NO_CHECKPOINT)
    done = choose_rounding(request, choice.way, rounding)
    found = find(request, choice, done, run)
    if has_top(request, choice, done):
        rows = top_rows(request, choice, found.values)
        found = found.with_moves(rows, top_moves(request, choice, rows))
    settled = settle(request, choice, found, done, ties, keep)
    if request.precision is None:
        return settled
    return dataclasses.replace(settled, measured_error=measure_error(request))


def settle(
    request: InfluenceRequest,
    choice: Choice,
    found: Found,
    rounding: Done,
    ties: TieRule = "error",
    keep: Keep = "pairs",
) -> Any:
    """`Influence` or `Scan` made of computed values; raises or warns of ambiguous ties."""
    way, met, reason = choice.way, found.ties, choice.reason
    if met is not None:
        judge_ties(request.model, met, f"row {met.row}", ties)
    if isinstance(way, Proposed) and found.values.size:
        reason += (
            f"; all {'ranked' if way.ranks else 'proposed'} in {way.precision}, "
            f"{found.evaluated} of {found.values.size} decided in float64"
        )
    ends = lower, upper, enclosed = ends_of(request, way, found, rounding)
    # The largest influence is one of those that have a radius, if any has. Cells of a table
    # that cannot change have a radius, 0, though no others have.
    known = bool(enclosed.any() or not enclosed.size)
    if request.layout is not None and found.values.size:
        largest = np.nan_to_num(np.abs(found.values), nan=-1.0).argmax()
        known = bool(enclosed.flat[largest])
    known = known and rounding != "none"
    error = found.error if isinstance(found, Enclosures) else None
    hypotheses = hypotheses_of(rounding) if known else ()
    stated = {
        "target": request.target,
        "method": way.name,
        "reason": reason,
        "rounding": rounding,
        "substitutions": len(request.pairs),
        "ties": met,
        "hypotheses": hypotheses if error is None else (*hypotheses, RANKED),
        "measured_error": error,
    }
    if not known or error is not None:
        stated["kind"] = "estimated"
    if request.layout is None:
        return _influence(request, choice, found, ends, keep, stated)
    kind = kind_of_largest(found.values, lower, upper)
    # A kind in `stated` goes before the computed one.
    return scan_of(request, (found.values, *ends), {"kind": kind} | stated)


def _influence(
    request: InfluenceRequest,
    choice: Choice,
    found: Found,
    ends: Ends,
    keep: Keep,
    stated: dict[str, Any],
) -> Influence:
    """`Influence` with the largest influence, and with the tables that `keep` names."""
    pairs, values, (lower, upper, enclosed) = request.pairs, found.values, ends
    best, largest = None, (0.0, 0.0, 0.0)
    if np.isfinite(values).any():  # the first of equals; never one that was estimated
        best = int(np.nanargmax(values))
        refuse_vanishing_rows(request, best)
        # A lower end without a radius is none.
        some = enclosed if enclosed[best] else np.ones(lower.shape, bool)
        largest = float(values[best]), float(lower[some].max()), float(upper.max())
    is_enclosed = isinstance(found, Enclosures)
    left = found.left.size if is_enclosed else 0
    # Substitutions that a screen left open may exceed the largest that was evaluated.
    kind: Kind = kind_of(*largest)
    if isinstance(choice.way, Screened) and left:
        kind = "enclosure"
    tables: dict[str, Any] = {}
    if keep == "pairs":
        dense = map(pairs.scatter, ends)
        tables = dict(zip(("lower", "upper", "enclosed"), dense, strict=True))
    if keep != "max":
        # A screen evaluates few substitutions, so its symbols are those of the largest upper
        # ends.
        tables |= by_position(pairs, upper if is_enclosed else values, ends)
    position, symbol = (None, None) if best is None else pairs[best]
    stated = {"kind": kind, **stated}
    return Influence(
        **tables,
        **stated,
        max=largest[0],
        max_lower=largest[1],
        max_upper=largest[2],
        position=position,
        symbol=symbol,
        query=request.query,
        zeros=int((lower == 0).sum()),
        evaluated=found.evaluated,
        uncertified=left,
        levels=found.levels if is_enclosed else (),
        decided=found.evaluated if isinstance(choice.way, Proposed) else None,
        block=choice.sizes,
    )


def by_position(
    pairs: Substitutions, value: Float[np.ndarray, "substitutions"], ends: Ends
) -> dict[str, Any]:
    """Fields `position_*` of an `Influence`: by position, largest ends, and symbol."""
    # Substitutions are in the order of (position, symbol). Ends are maxima over symbols,
    # NaN where nothing is substituted; the symbol is the smallest of the largest value,
    # -1 where there is none, and `position_enclosed` is that of this symbol.
    lower, upper, enclosed = ends
    # Where a position's run of substitutions begins.
    first = np.flatnonzero(np.diff(pairs.position, prepend=-1))
    runs = np.diff(first, append=value.size)
    top = np.flatnonzero(value == np.repeat(np.maximum.reduceat(value, first), runs))
    top = top[np.diff(pairs.position[top], prepend=-1) != 0]  # the first of equals

    def table(
        missing: Any,
        at: Int[np.ndarray, "positions"],
        found: Shaped[np.ndarray, "positions"],
    ) -> Shaped[np.ndarray, "tokens"]:
        made = np.full(pairs.length, missing)
        made[pairs.position[at]] = found
        return made

    return {
        "position_lower": table(np.nan, first, np.maximum.reduceat(lower, first)),
        "position_upper": table(np.nan, first, np.maximum.reduceat(upper, first)),
        "position_symbol": table(-1, top, pairs.symbol[top]),
        "position_enclosed": table(False, top, enclosed[top]),
    }


def scan_of(
    request: InfluenceRequest,
    values: tuple[Shaped[np.ndarray, "..."], ...],  # with lower, upper and enclosed
    stated: dict[str, Any],
) -> Scan:
    """`Scan` of a request from its tables of values, lower and upper ends, enclosed."""
    layout = request.layout
    assert layout is not None
    axes, symbols = layout.made_axes, layout.symbols
    # One list of symbols stands for all positions where they have the same.
    alike = len(symbols) and (symbols == symbols[:1]).all()
    if not layout.reduction.own_axes:
        values, (axes, *_) = zip(*(layout.trim(x, axes) for x in values), strict=True)
    return Scan(
        *values,
        axes=axes,
        positions=layout.positions,
        symbols=symbols[0, :0] if layout.deletes else symbols[0] if alike else symbols,
        rows=layout.rows,
        target_symbols=layout.names if layout.reduction.by_target else None,
        tokens=request.tokens,
        base_of=Base(dataclasses.replace(request, shared=SharedBase())),
        **stated,
    )
