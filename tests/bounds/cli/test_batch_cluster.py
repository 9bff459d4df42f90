"""A sweep on a Dask cluster that runs elsewhere ends like one of this process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from bounds.store.results import read_cells
from jax_models import InputError

# A cluster in a process of its own: says where it is, ends when its input does.
CLUSTER = """
    import json, os, sys
    from distributed import Client, LocalCluster
    if __name__ == "__main__":
        settings = {"processes": True, "threads_per_worker": 1, "host": "127.0.0.1"}
        with LocalCluster(n_workers=2, dashboard_address=None, **settings) as cluster:
            with Client(cluster) as client:
                workers = list(client.run(os.getpid).values())
            print(json.dumps([cluster.scheduler_address, workers]), flush=True)
            sys.stdin.read()
"""
SWEEP = [
    "batch",
    "--command=entropy",
    "--sweep=language=parity,dyck2",
    f"--sweep=lengths={','.join(map(str, range(2, 42)))}",
    "--sweep=p=0.3,7",
]


@contextlib.contextmanager
def running_cluster(folder):
    """Yield the address of a cluster in another process, and the ids of its workers."""
    program = folder / "cluster.py"
    program.write_text(textwrap.dedent(CLUSTER))
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(timeout=60)


def result_rows(path):
    return sorted(
        (row["key"], row["status"], row["message"], str(row.get("rows")))
        for row in read_cells(path)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask warns of
def test_a_sweep_joins_a_running_scheduler_and_outlives_a_worker(run, tmp_path):
    pytest.importorskip("distributed")
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

    with running_cluster(tmp_path) as (address, workers):
        assert len(set(workers)) == 2
        killer = threading.Thread(target=kill, args=workers[:1])
        killer.start()
        result = run(*SWEEP, f"--scheduler={address}", "--out=far")
        killer.join()
    result.assert_refused(f"{cells // 2} of {cells} cells failed")
    assert killed[0] < cells
    run(*SWEEP, "--out=near").assert_refused(f"{cells // 2} of {cells} cells failed")
    rows = result_rows(store)
    assert len(rows) == cells
    assert rows == result_rows("near/results.sqlite")
