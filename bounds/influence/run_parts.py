"""Computes the parts of a request that a store lacks, and keeps each at once.

Of several processes the first leads: it alone has the store, chooses the parts and keeps
what is found; the others follow, and compute their share of each part.
"""

import contextlib
import time
from typing import Any

import numpy as np

from bounds.influence import parts
from bounds.influence.parts import Parts, Record, join_arrays
from bounds.store.file import explained
from bounds.store.results import ResultStore, cell_key
from bounds.store.sweep import Cell, obtain
from jax_models.run.mesh import check_agreement, first_says


def run_parts(
    store: ResultStore, planned: Parts, *, fresh: bool = False
) -> tuple[Any, int, float]:
    """Result of all parts, the number with ambiguous ties, and seconds, earlier ones too."""
    _agree(planned.cell(0))
    found: list[Record] = []
    start, most, seconds, resumed = 0, 0, 0.0, False
    while start < len(planned.positions):
        cell = planned.cell(start, planned.stop(start, most))
        one = None if fresh else store.find(cell.config)
        if one is None:
            _tell(start, most)
            one, took = _keep(store, planned, cell, fresh)
            most = int((one["stop"] - start) * parts.SECONDS / took)
        else:
            resumed = True
            with explained(store.path):
                planned.check(one, start)
                label = f"{planned.label(start, one['stop'])}, from the store"
            if planned.progress is not None:
                planned.progress.skip(label, one["stop"] - start)
        found.append(one)
        seconds += store.seconds(cell.config)
        start = one["stop"]
    _tell(start, 0)
    # Of results that this run made, an error over them is one of the program.
    with explained(store.path) if resumed else contextlib.nullcontext():
        arrays, last = join_arrays(found), {}
    if (cell := planned.last(arrays[0])) is not None:
        missing = fresh or store.find(cell.config) is None
        _agree(cell, missing)
        last = obtain(store, cell, fresh=fresh)
        resumed |= not missing
        seconds += store.seconds(cell.config)
    with explained(store.path) if resumed else contextlib.nullcontext():
        ambiguous = sum(one["ambiguous"] for one in found)
        return planned.join(arrays, found, last), ambiguous, seconds


def follow_parts(planned: Parts) -> None:
    """Computes this process's share of the parts that the leading process computes."""
    _agree(planned.cell(0))
    while (told := _tell(0, 0))[0] < len(planned.positions):
        planned.cell(told[0], planned.stop(*told)).compute()
    cell = planned.last(None)
    if cell is not None and _agree(cell):
        cell.compute()


def _agree(cell: Cell, chosen: bool = False) -> bool:
    """The leading process's `chosen`; refuses a process with another cell."""
    check_agreement(cell_key(cell.config).encode())
    return bool(_tell(chosen)[0])


def _tell(*numbers: int) -> list[int]:
    """The leading process's numbers; each process gives equally many."""
    told = first_says(np.array(numbers, np.int64).tobytes())
    return np.frombuffer(told, np.int64).tolist()


def _keep(
    store: ResultStore, planned: Parts, cell: Cell, fresh: bool
) -> tuple[Record, float]:
    """Computes a cell and saves it; returns its record and the seconds it took."""
    kept = planned.checkpoint(cell.config)
    if kept is not None and fresh:
        kept.unlink(missing_ok=True)
    began = time.perf_counter()
    found = obtain(store, cell, fresh=True)
    took = time.perf_counter() - began
    # A screen that did not close may be continued later.
    if kept is not None and planned.is_closed(found):
        kept.unlink(missing_ok=True)
    return found, took
