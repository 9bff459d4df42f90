"""A sweep on a Dask cluster that runs elsewhere ends like one of this process."""

import contextlib
import os
import signal
import threading
import time

import pytest

from bounds.store.results import read_cells
from jax_models import InputError

SWEEP = [
    "batch",
    "--command=entropy",
    "--sweep=language=parity,dyck2",
    f"--sweep=lengths={','.join(map(str, range(2, 42)))}",
    "--sweep=p=0.3,7",
]


def result_rows(path):
    return sorted(
        (row["key"], row["status"], row["message"], str(row.get("rows")))
        for row in read_cells(path)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask warns of
def test_a_sweep_joins_a_running_scheduler_and_outlives_a_worker(run, tmp_path):
    distributed = pytest.importorskip("distributed")
    cells = 160
    store = "far/results.sqlite"
    killed = []

    def kill(worker):
        """Kill the worker when some cells are finished and most are not."""
        while not killed:
            with contextlib.suppress(OSError, InputError):  # before the store is made
                if (held := len(read_cells(store))) >= 5:
                    os.kill(worker, signal.SIGKILL)
                    killed.append(held)
            time.sleep(0.01)

    settings = {"processes": True, "threads_per_worker": 1, "host": "127.0.0.1"}
    with (
        distributed.LocalCluster(2, dashboard_address=None, **settings) as cluster,
        distributed.Client(cluster) as client,
    ):
        address, workers = cluster.scheduler_address, client.run(os.getpid).values()
        assert len(set(workers)) == 2
        killer = threading.Thread(target=kill, args=[*workers][:1])
        killer.start()
        result = run(*SWEEP, f"--scheduler={address}", "--out=far")
        killer.join()
    result.assert_refused(f"{cells // 2} of {cells} cells failed")
    assert killed[0] < cells
    run(*SWEEP, "--out=near").assert_refused(f"{cells // 2} of {cells} cells failed")
    rows = result_rows(store)
    assert len(rows) == cells
    assert rows == result_rows("near/results.sqlite")
