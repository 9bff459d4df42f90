"""A `curve` that is killed keeps what was measured and goes on from there."""

import signal
import subprocess
import sys
import time

import pytest

from bounds import read_store
from bounds.store.results import StoreError
from tests.bounds.cli.shape import SHAPE_FLAGS

TINY = [
    *SHAPE_FLAGS,
    "--lengths=4,8",
    "--bounds=none",
    "--weighting=softmax",
    "--method=exhaustive",
]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_where_it_stopped(tmp_path):
    options = [*TINY, "--num_inputs=50"]

    def start(out):
        return subprocess.Popen(
            [sys.executable, "-m", "bounds", "curve", f"--out={out}", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finished(out):
        try:
            return {row["key"]: row["finished"] for row in read_store(out)}
        except (FileNotFoundError, StoreError):
            return {}

    store = tmp_path / "killed" / "results.sqlite"
    process = start(tmp_path / "killed")
    deadline = time.monotonic() + 300
    while len(finished(store)) < 3 and process.poll() is None:
        assert time.monotonic() < deadline, process.kill()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    said, problems = process.communicate()
    assert process.returncode == -signal.SIGKILL, problems
    kept = finished(store)
    assert 3 <= len(kept) < 100, "killed too late to show anything"
    assert not (tmp_path / "killed" / "curve.csv").exists()

    again = start(tmp_path / "killed")
    said, problems = again.communicate(timeout=300)
    assert again.returncode == 0, problems
    assert f"{100 - len(kept)} of 100 measurements to make" in said
    assert kept.items() <= finished(store).items()
    undisturbed = start(tmp_path / "undisturbed")
    undisturbed.communicate(timeout=300)
    one, other = (tmp_path / name / "curve.csv" for name in ("killed", "undisturbed"))
    assert one.read_text() == other.read_text()
