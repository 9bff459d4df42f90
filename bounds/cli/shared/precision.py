"""`--precision`: changes in half precision, and their measured error as a cell of its own."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bounds.influence.request import InfluenceRequest
from bounds.influence.result import MeasuredError
from bounds.rounding.measured_error import measure_error
from bounds.store.forms import fields
from bounds.store.sweep import Cell

ERROR = "measured_error"
_ERROR = "substitutions entries median percentile_99 reference"
ERROR_FORM = (fields(_ERROR, max=(float, None)), None)
# Columns that every cell needs, for one that is no block of positions.
_NO_BLOCK = {"position": None, "ambiguous": False, "uncertified": 0}


def with_error(
    cells: list[Cell], precision: str | None, request: Callable[[], InfluenceRequest]
) -> list[Cell]:
    """Cells, followed in half precision by one that measures its error."""
    if precision is None:
        return cells
    end = cells[-1].config["stop"]
    config = {**cells[-1].config, "start": end, ERROR: True}

    def compute() -> dict[str, Any]:
        error = measure_error(request())
        return {**_NO_BLOCK, ERROR: error and dataclasses.asdict(error)}

    form = fields(*_NO_BLOCK, position=None, measured_error=ERROR_FORM)
    return [*cells, Cell(config, "measured error", compute, form=form)]


def split_error(
    found: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], MeasuredError | None]:
    """Records of blocks, and the error if it was measured."""
    if not found or ERROR not in found[-1]:
        return list(found), None
    last = found[-1]
    blocks = list(found[:-1] if set(last) == {*_NO_BLOCK, ERROR} else found)
    if last[ERROR] is None:
        return blocks, None
    # Infinity is recorded as null.
    told: dict[str, Any] = {
        k: float("inf") if x is None else x for k, x in last[ERROR].items()
    }
    return blocks, MeasuredError(**told)


def error_columns(error: MeasuredError | None) -> dict[str, Any]:
    """Columns of a measured error; none without a measurement."""
    return {} if error is None else {ERROR: dataclasses.asdict(error)}
