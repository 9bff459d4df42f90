"""Cells of a sweep on a Dask cluster.

A cell is one run of a command; its outcome is its result, or the message of its error.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bounds.store.provenance import provenance
from bounds.store.results import cell_key
from bounds.store.sweep import Cell, GoOn, Outcome, Outcomes, compute
from jax_models.errors import InputError
from jax_models.interrupt import raise_requested
from jax_models.on_demand import require_package
from jax_models.run.compiler import avoid_miscompilation

# Seconds until a scheduler that does not answer is given up.
PATIENCE = 30
# Seconds after which workers that have come meanwhile are given cells.
LOOK_AGAIN = 1.0


def run_on_cluster(
    local_workers: int | None,
    scheduler: str | None,
    cells: Sequence[Cell],
    go_on: GoOn = lambda: True,
) -> Outcomes:
    """Opens a Dask cluster, runs cells on it and yields each with its outcome."""
    with open_cluster(local_workers, scheduler) as client:
        yield from submit_cells(client, cells, go_on)


def submit_cells(
    client: Any, cells: Sequence[Cell], go_on: GoOn = lambda: True
) -> Outcomes:
    """Runs cells on a Dask cluster; yields each with its outcome as it ends.

    As many cells run at a time as there are threads. Once `go_on` is false, those under
    way are waited for; leaving the iterator cancels them. A lost connection to the
    scheduler raises `ConnectionError`.
    """
    from distributed import (  # pyright: ignore[reportMissingImports]
        CancelledError,
        wait,
    )

    waiting, under_way = iter(cells), {}

    def begin() -> None:
        # Workers come and go; without any, the first that comes finds one cell.
        threads = max(1, sum(client.nthreads().values()))
        while len(under_way) < threads and go_on():
            cell = next(waiting, None)
            if cell is None:
                return
            key = f"{cell.config['command']}-{cell_key(cell.config)}"
            future = client.submit(_on_worker, cell.compute, key=key, pure=False)
            under_way[future] = cell

    try:
        begin()
        while under_way:
            try:
                ended = wait(list(under_way), LOOK_AGAIN, "FIRST_COMPLETED").done
            except TimeoutError:
                ended = ()
            except CancelledError as error:  # none is by us before the iterator is left
                raise ConnectionError(
                    "the connection to the Dask scheduler is lost; finished cells are "
                    "kept, run the same command again when it is back"
                ) from error
            raise_requested()
            found = [(under_way.pop(future), _outcome(future)) for future in ended]
            begin()  # before the caller is busy with what came of these
            yield from found
    finally:
        client.cancel(list(under_way), force=True)


def _on_worker(work: Callable[[], Mapping[str, Any]]) -> Outcome:
    """Outcome of a cell's work, run in a worker process, with the worker's provenance."""
    avoid_miscompilation()
    return dataclasses.replace(compute(work), origin=provenance())


def _outcome(future: Any) -> Outcome:
    """Outcome of a finished Dask future; an error of the cluster becomes its message."""
    error = future.exception()
    if error is None:
        return future.result()
    # Of the cluster's own, as after several workers died on one cell.
    return Outcome(None, f"{type(error).__name__}: {error}", 0.0)


@contextlib.contextmanager
def open_cluster(local_workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yields the client of a Dask cluster of local processes, or of a given scheduler."""
    distributed = require_package("distributed", "a sweep on a Dask cluster")
    with contextlib.ExitStack() as opened:
        cluster: Any = scheduler
        if scheduler is None:  # `Client` alone would take an address of Dask's settings
            own = {"threads_per_worker": 1, "dashboard_address": None}
            own |= {"n_workers": local_workers, "host": "127.0.0.1"}
            cluster = opened.enter_context(distributed.LocalCluster(**own))
        try:
            client = distributed.Client(cluster, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--scheduler={scheduler}: no Dask scheduler answers there within "
                f"{PATIENCE} s ({error}); start one with: dask scheduler"
            ) from error
        yield opened.enter_context(client)
