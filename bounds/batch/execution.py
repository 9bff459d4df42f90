"""Running cells, here or on a Dask cluster; the caller keeps what comes of them."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from bounds.batch.cells import BatchCell, Outcome
from bounds.batch.compilation import release_programs
from bounds.optional import has_package
from bounds.provenance import provenance
from jax_models.errors import InputError

# From a command's name, its arguments and the SHA-256 of the files that these name, by
# path, to what came of them; runs in any process.
Perform = Callable[[str, tuple[str, ...], Mapping[str, str]], Outcome]
# Seconds until a scheduler that does not answer is given up.
PATIENCE = 30


def run_here(
    perform: Perform, command: str, cells: Sequence[BatchCell]
) -> Generator[tuple[BatchCell, Outcome], None, None]:
    """Run cells one after the other in this process, which keeps what it compiled.

    Args:
        perform: Runs one.
        command: The command's name.
        cells: In the order they are run.

    Yields:
        Each cell as soon as it is finished, with what came of it.
    """
    for cell in cells:
        release_programs()
        yield cell, perform(command, cell.arguments, cell.files)


def run_on_cluster(
    client: Any, perform: Perform, command: str, cells: Sequence[BatchCell]
) -> Generator[tuple[BatchCell, Outcome], None, None]:
    """Run cells as futures of a Dask cluster.

    The cells of a worker that is lost are run by another. To leave the iterator cancels
    the cells that no worker has begun.

    Args:
        client: Of the cluster, from `open_cluster`.
        perform: Runs one; workers import it.
        command: The command's name.
        cells: Early ones are begun first.

    Yields:
        Cells in the order of finishing, with what came of them.

    Raises:
        ConnectionError: The scheduler is gone, or has forgotten the cells.
    """
    from distributed import as_completed  # pyright: ignore[reportMissingImports]

    futures = {
        client.submit(
            perform,
            command,
            cell.arguments,
            cell.files,
            key=f"{command}-{cell.key}",
            priority=-place,
            pure=False,
        ): cell
        for place, cell in enumerate(cells)
    }
    try:
        for future in as_completed(futures):
            if future.cancelled():  # none is by us before the iterator is left
                raise ConnectionError(
                    "the connection to the Dask scheduler is lost; finished cells are "
                    "kept, run the same command again when it is back"
                )
            error = future.exception()
            if error is None:
                outcome = future.result()
            else:  # of the cluster's own, as after several workers died on one cell
                message = f"{type(error).__name__}: {error}"
                outcome = Outcome(None, message, 0.0, 0.0, 0.0, None, provenance())
            yield futures[future], outcome
    finally:
        client.cancel(list(futures), force=True)


@contextlib.contextmanager
def open_cluster(local_workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the client of a Dask cluster, started here or joined.

    Args:
        local_workers: Processes of a cluster on this machine, one cell at a time each.
        scheduler: Address of a running one, in place of that.

    Raises:
        InputError: Dask distributed is not installed, or no scheduler answers.
    """
    if not has_package("distributed"):
        raise InputError(
            "--local_workers and --scheduler need Dask distributed, which is not "
            "installed; install it with: pip install 'attention-bounds[cluster]'"
        )
    import distributed  # pyright: ignore[reportMissingImports]

    with contextlib.ExitStack() as opened:
        if scheduler is None:
            cluster: Any = opened.enter_context(
                distributed.LocalCluster(
                    n_workers=local_workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    host="127.0.0.1",
                )
            )
        else:
            cluster = scheduler
        try:
            client = distributed.Client(cluster, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--scheduler={scheduler}: no Dask scheduler answers there within "
                f"{PATIENCE} s ({error}); start one with: dask scheduler"
            ) from error
        yield opened.enter_context(client)
