"""Builds and checks the requests of `compute_influence`, `scan` and all commands.

A request is a question about one input: tokens are replaced or deleted one at a time,
and a target, a quantity of the model's output, is watched at one or more rows (token
positions of the output). A scan puts the changes of the target, or a reduction of them,
into the entries of a table, whose layout is the list of its axes; a reading is the
choice of the numbers to take from each change. The query is the one watched row.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from bounds.influence.inputs.callable import Callable
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Run, check_run
from bounds.influence.methods.function_blocks import function_base
from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import (
    Substitutions,
    Symbols,
    check_query,
    list_substitutions,
)
from bounds.influence.table.layout import Layout, Reading
from bounds.influence.table.reductions import Reduce, as_reduction, require_table
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.change import change_watched
from bounds.influence.targets.function import TargetFunction
from bounds.influence.targets.pooled import Pooled
from bounds.influence.targets.table import (
    Watched,
    as_value,
    check_head_row,
    check_target,
)
from bounds.rounding.precision import Precision, choose_precision
from jax_models import InputError, Transformer
from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_integers,
    expect_kind,
)
from jax_models.format.model_check import check_model
from jax_models.jax_arguments import check_float_type
from jax_models.model.transformer import of_input, shared_symbols
from jax_models.run.evaluate import check_tokens

# What is done to a position: every substitute in turn is put in, or it is deleted.
Edit = Literal["replace", "delete"]


# The rows that a scan watches, and the entries of the target that count.


def watch_rows(
    request: InfluenceRequest, rows: Any, instead: Sequence[int] | None
) -> tuple[InfluenceRequest, bool]:
    """Request that watches `rows` ("all": `instead`), and True if scans have no row axis."""
    n = request.tokens.size
    if rows is None:
        return request, True
    if request.target_value.is_joint:
        raise InputError(
            f"rows = {rows!r}, but the target {request.target} is of rows of its own; "
            "leave rows out"
        )
    if isinstance(rows, str):
        choose_name("rows", rows, ("all", "own"))
        if rows == "own":
            return dataclasses.replace(request, own=True), True
        # A square map watches the rows of its own positions; any other table has all rows.
        listed = range(n) if instead is None else instead
    elif np.ndim(rows) == 0:
        row = expect_integer("rows", rows, -n, n - 1)
        return dataclasses.replace(request, query=row % n), True
    else:
        listed = [x % n for x in expect_integers("rows", rows, -n, n - 1)]
    if not len(listed) or len(set(listed)) < len(listed):
        raise InputError(
            f"rows lists {len(listed)} rows, {len(set(listed))} of them different; expected "
            "one or more, each of them once"
        )
    return dataclasses.replace(request, watched=tuple(map(int, listed))), False


# Traced once for questions of one shape.
_change_watched = jax.jit(change_watched)


def watched_width(request: InfluenceRequest) -> tuple[int, bool]:
    """Number of entries of the target, and whether each row has a target of its own."""
    model = request.model
    if isinstance(model, Callable):
        base = function_base(request)
        return base.outputs.shape[-1], base.by_row
    target, shape = request.target_value, (request.rows.size, model.width)
    output, change = (
        jax.ShapeDtypeStruct(x, model.dtype) for x in (shape, (1, *shape))
    )
    # Tracing gives the width without computing a change.
    found = _change_watched.eval_shape(model, target, output, change)
    return found.shape[-1], not target.is_joint


def chosen_entries(
    target: Any, wanted: Sequence[int] | None, width: int
) -> tuple[tuple[int, ...] | None, Int[np.ndarray, "classes"] | None]:
    """Indices of the target entries `wanted` (None: all), and their symbols, or None."""
    symbols = as_value(target).entry_symbols(width)
    if wanted is None:
        return None, symbols
    # Symbols index the target's last axis only where entry t is that of symbol t.
    if symbols is None or not np.array_equal(symbols, np.arange(width)):
        raise InputError(
            f"target_symbols chooses among the entries of target={target!r}, which has "
            'none for each symbol; use "logits" or "log_probabilities", or leave it out'
        )
    chosen = tuple(map(int, expect_integers("target_symbols", wanted, 0, width - 1)))
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(
            f"target_symbols = {wanted}; expected one or more, each of them once"
        )
    return chosen, np.asarray(chosen)


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """Arguments of `scan` on its table, and the edit (replace or delete) of tokens."""

    rows: Any = None
    target_symbols: Sequence[int] | None = None
    reduce: Reduce = None
    diagonal: bool = True
    edit: Edit = "replace"


def build_request(
    model: Transformer | Callable,
    tokens: Any,
    *,
    query: int | None = None,
    target: Watched = "activation",
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    table: TableOptions | None = None,
    dtype: Any = None,
    run: Run | None = None,
    shared: SharedBase | None = None,
    precision: Precision | None = None,
) -> InfluenceRequest:
    """Checked request about a model and an input.

    Args:
        model: a transformer, or a `Callable`.
        tokens: integers in [0, V) [n].
        query: the watched row; see `compute_influence`.
        target: a name or a value of `targets`.
        symbols: substitute symbols, or rows of them for each of the positions; by
            default all that the model allows.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.
        table: options of a scan, whose `rows` stand in place of the query, which is
            changed too; None gives one value for each substitution, the norm of its
            change.
        dtype: asserts the float type.
        run: the devices and the memory limit; the rest is not read.
        shared: holds a base pass for several requests.
        precision: precision of products of changes.

    Returns:
        The request, which methods, `compute_influence` and `scan` compute.

    Raises:
        InputError: an argument does not fit the model or the others; in a scan nothing
            can be substituted, or the table does not fit the memory.
    """
    padding = 0
    if isinstance(model, Transformer):
        model = check_model(model)
        target = check_target(model, target)
        _check_dtype(model, dtype)
    elif isinstance(model, Callable):
        choose_name("target", target, get_args(PlainTarget))
    else:
        raise InputError(
            f"model is a {type(model).__name__}; expected a Transformer, such as "
            "jax_models.load returns, or a function in a bounds.Callable: "
            "Callable(apply, params, batched=..., vocab_size=...)"
        )
    checked = np.asarray(check_tokens(model.vocab_size, tokens))
    if isinstance(model, Transformer) and model.padding is not None:
        # An influence is that of the input without its padding: methods then need no rule
        # for it.
        whole, checked = checked, model.padding.leave(checked)
        padding = whole.size - checked.size
    with _naming(padding):
        if as_value(target).is_joint:
            as_value(target).rows(checked.size)
            include_query = True  # no row is watched more than another
        query = check_query(query, checked.size, model)
        if isinstance(model, Transformer):
            check_head_row(model, target, [query], checked.size)
        pairs = list_substitutions(
            checked,
            model.vocab_size,
            query=query,
            symbols=symbols,
            positions=positions,
            substitutable=getattr(model, "substitutable", None),
            special=getattr(model, "special", None) or (),
            include_query=include_query or table is not None,
        )
    given, radius = model, getattr(model, "radius", None)
    # A deletion has no substitute, so a position is listed once, with a symbol that methods
    # do not look up: the number behind the last of the vocabulary.
    deletes = table is not None and table.edit == "delete"
    if deletes:
        require_deletable(model, target, checked.size)
        every = np.unique(pairs.position)
        count = model.vocab_size
        deleted = np.full(every.shape, count, np.int32)  # a symbol that there is not
        pairs = Substitutions(every, deleted, checked.size, count + 1)
    elif isinstance(model, Transformer):
        # A caller's function of the activations is evaluated with the model inside, like any
        # other `Callable`; it has no change form.
        if isinstance(target, TargetFunction):
            model, radius = target.of_tokens(model), target.radius
        # Encodings that depend on the whole input are computed once, unless a substitution
        # changes rows at other positions, as the mask token does under token dropout.
        elif not np.isin(
            [pairs.symbol, checked[pairs.position]], shared_symbols(model)
        ).any():
            model = of_input(model, checked)
    run = check_run(run)
    request = InfluenceRequest(
        model=model,
        tokens=checked,
        query=query,
        target=target,
        pairs=pairs,
        shared=shared or SharedBase(),
        mesh=run.mesh,
        memory_limit=run.memory_limit,
        radius=radius,
        precision=choose_precision(model, precision),
        deletes=deletes,
    )
    if table is None:
        return request
    return _with_table(request, given, table, symbols, positions)


def _with_table(
    request: InfluenceRequest,
    model: Transformer | Callable,  # without what the input or the target fixes
    table: TableOptions,
    symbols: Symbols | None,
    positions: Sequence[int] | None,
) -> InfluenceRequest:
    """Request completed by a scan's checked table layout and its reading of changes."""
    expect_kind("diagonal", table.diagonal, bool, "True or False")
    rows, reduction = table.rows, as_reduction(table.reduce)
    word = rows if isinstance(rows, str) else None
    # A square map is of the positions at which something is replaced, on both of its axes.
    if word == "all" and reduction.square and positions is None:
        positions = np.unique(request.position).tolist()
        if symbols is not None and np.ndim(symbols) == 2:
            symbols = np.asarray(symbols)[positions]
    if request.deletes:
        if not reduction.by_cell or not table.diagonal or word == "own":
            raise InputError(
                "a deletion has no substitutes and no row of its own: give reduce=None or "
                '"none", diagonal=True, and rows other than "own"'
            )
        symbols = [model.vocab_size]
    request, alone = watch_rows(request, rows, positions if reduction.square else None)
    if request.own and (reduction.square or not table.diagonal):
        raise InputError(
            'rows = "own" leaves the cells whose position is the row, and '
            f"{'reduce = Frobenius' if reduction.square else 'diagonal = False'} leaves "
            'these out; give rows = "all"'
        )
    if isinstance(model, Transformer):
        at = request.rows.tolist()
        check_head_row(model, request.target, at, request.tokens.size)
    width, of_row = watched_width(request)
    if not of_row and (not alone or rows is not None):
        raise InputError(
            f"rows = {rows!r}, but {request.model} says one thing of an input, not one "
            "of each row; leave rows out"
        )
    if not table.diagonal and (reduction.square or not of_row):
        raise InputError(
            "diagonal = False leaves out the cells whose position is the row, and here "
            f"{'are none' if not of_row else 'these are 0 anyway'}; leave diagonal out"
        )
    if not of_row and reduction.square:
        raise InputError(
            f"reduce = {table.reduce!r} is over pairs of a position and a row, and what is "
            "watched is of no one row; give another reduce"
        )
    chosen, names = chosen_entries(request.target, table.target_symbols, width)
    # Entries of a head over classes are no symbols, although they may be as many.
    # Symbols of a target's entries; None for classes and for a row's coordinates.
    entries = names
    if isinstance(model, Transformer):
        entries = names if model.classes == model.vocab_size else None
    elif width != model.vocab_size:
        entries = None
    elif names is None:
        entries = np.arange(width)
    layout = Layout.of(
        request.pairs,
        symbols,
        positions,
        getattr(model, "substitutable", None) or range(model.vocab_size),
        # Own rows have no axis: a cell's position already says its row.
        rows=request.rows[:0] if request.own else request.rows,
        reduction=reduction,
        width=width if chosen is None else len(chosen),
        alone=alone,
        deletes=request.deletes,
        of_row=of_row,
        keeps_diagonal=table.diagonal,
        entries=entries,
        names=names,
    )
    reduction.check(layout)
    if not len(request.pairs):
        raise InputError(
            "nothing can be substituted: at every position that is changed there are "
            "no symbols but the one that stands there; name other symbols or positions"
        )
    require_table("the table", layout)
    reading = Reading(reduction.kind, chosen)
    return dataclasses.replace(request, reading=reading, layout=layout)


def require_deletable(model: Any, target: Any, length: int) -> None:
    """Raises `InputError` unless tokens can be deleted, for this model and target."""
    if not isinstance(model, Transformer) or isinstance(target, TargetFunction):
        raise InputError(
            "tokens are deleted from inputs of a Transformer alone, watched by a target "
            "of the table in docs/targets.md"
        )
    value = as_value(target)
    if value.is_joint and not isinstance(value, Pooled):
        raise InputError(
            f"target = {target} reads positions by number, which a deletion moves; give a "
            "pooled target, or one of each row"
        )
    if length < 2:
        raise InputError("the input has one token, and a deletion would leave none")


@contextlib.contextmanager
def _naming(padding: int) -> Iterator[None]:
    """Adds to an `InputError` that positions exclude padding, unless `padding` is 0."""
    try:
        yield
    except InputError as error:
        if not padding:
            raise
        raise InputError(
            f"{error} (positions are counted without the padding, the last {padding} of "
            "the tokens given)"
        ) from error


def _check_dtype(model: Transformer, dtype: Any) -> None:
    if dtype is not None:
        check_float_type(dtype, "the dtype asked for")
    if dtype is not None and jnp.dtype(dtype) != jnp.dtype(model.dtype):
        raise InputError(
            f"dtype = {jnp.dtype(dtype).name} but the model is "
            f"{jnp.dtype(model.dtype).name}; convert the model, or leave dtype out"
        )
