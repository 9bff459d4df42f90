"""What the parts of `influence` and of `scan` share: the moves of the largest values."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from bounds.cli.shared.packed import pack, unpack
from bounds.influence import InfluenceRequest
from bounds.influence.choice import Choice
from bounds.influence.find import top_moves, top_rows
from bounds.influence.result import Found
from bounds.store.forms import COUNT
from bounds.store.sweep import Cell
from jax_models.run.mesh import first_says


def top_cell(
    key: Mapping[str, Any],
    request: Callable[[], InfluenceRequest],  # of all parts
    choice: Choice,
    positions: int,
    values: Float[np.ndarray, "rows *axes"] | None,  # None in a process that follows
) -> Cell:
    """Cell that makes runs with moved inputs of the largest values of all parts."""

    def compute() -> dict[str, Any]:
        whole, rows = request(), np.zeros(0, np.int64)
        if values is not None:
            rows = top_rows(whole, choice, values)
        rows = np.frombuffer(first_says(rows.tobytes()), np.int64)
        moves = top_moves(whole, choice, rows)
        return {"rows": rows, "shape": moves.shape, "moves": pack(moves)}

    config = {**key, "start": positions, "stop": positions, "part": "top"}
    count = 2**63 if values is None else len(values)
    form = {"rows": [range(count)], "shape": [COUNT], "moves": str}
    return Cell(config, "the largest again, moved", compute, form=form)


def add_top(found: Found, top: Mapping[str, Any] | None) -> Found:
    """Values with the moves that the record of `top_cell` holds, if there is one."""
    if top is None:
        return found
    return found.with_moves(
        np.asarray(top["rows"], np.int64), unpack(top["moves"], *top["shape"])
    )
