"""The rows that a scan watches, and the entries of the target that count."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from bounds.influence.inputs.callable import Callable
from bounds.influence.methods.function_blocks import function_base
from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.change import change_watched
from bounds.influence.targets.table import as_value
from jax_models import InputError
from jax_models.arguments import choose_name, expect_integer, expect_integers


def watch_rows(
    request: InfluenceRequest, rows: Any, instead: Sequence[int] | None
) -> tuple[InfluenceRequest, bool]:
    """The request with the requested rows, and True if there is no axis of rows."""
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
    """Number of entries of the watched quantity, and True if it is of one row each."""
    model = request.model
    if isinstance(model, Callable):
        base = function_base(request)
        return base.outputs.shape[-1], base.by_row
    target, shape = request.target_value, (request.rows.size, model.width)
    output, change = (
        jax.ShapeDtypeStruct(x, model.dtype) for x in (shape, (1, *shape))
    )
    found = _change_watched.eval_shape(model, target, output, change)
    return found.shape[-1], not target.is_joint


def chosen_entries(
    target: Any, wanted: Sequence[int] | None, width: int
) -> tuple[tuple[int, ...] | None, Int[np.ndarray, "classes"] | None]:
    """Entries of the target that count (None: all), and their symbols if any."""
    symbols = as_value(target).entry_symbols(width)
    if wanted is None:
        return None, symbols
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
