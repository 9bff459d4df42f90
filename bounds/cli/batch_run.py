"""One cell of a sweep: a run of a command that gives rows, in whatever process."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bounds.batch.cells import Outcome
from bounds.batch.execution import compile_clock, peak_bytes
from bounds.cli.batch_cells import load_batched
from bounds.cli.main import PROGRAM, one_line
from bounds.output import plain, sha256
from bounds.provenance import provenance
from bounds.sweep import MemoryResults
from jax_models.device_memory import memory_planned
from jax_models.errors import InputError


def perform(
    command: str, arguments: tuple[str, ...], files: Mapping[str, str], memory: int
) -> Outcome:
    """Run a command for its rows.

    Args:
        command: Its name.
        arguments: What is typed after it, without --out.
        files: The SHA-256 of every file that a flag names, by path. A file of another
            content, on this machine or since the sweep was planned, is a failure: its
            result would stand under the wrong key.
        memory: Bytes that blocks may take where no flag says; a block that the device
            here has no room for is a failure too.

    Returns:
        What came of it. Whatever is raised is told as its message: one cell does not
        stop a sweep.
    """
    module = load_batched(command)
    rows, message = None, None
    start, cpu_start = time.perf_counter(), time.process_time()
    with compile_clock() as clock, tempfile.TemporaryDirectory() as folder:
        options = module.define_flags()
        try:
            options([PROGRAM, *arguments, f"--out={folder}"])
            _check_files(files)
            with memory_planned(memory):
                found = plain(module.measure_rows(options, MemoryResults()))
            _check_files(files)
            rows = found
        except InputError as error:
            message = one_line(error)
        except Exception as error:
            message = f"{type(error).__name__}: {one_line(error)}"
    return Outcome(
        rows,
        message,
        time.perf_counter() - start,
        time.process_time() - cpu_start,
        clock.seconds,
        peak_bytes(),
        provenance(),
    )


def _check_files(files: Mapping[str, str]) -> None:
    for path, digest in files.items():
        if sha256(Path(path).read_bytes()) != digest:
            raise InputError(
                f"{path} is not the file that the sweep was planned with; run the same "
                "command again to plan it with the one that is there"
            )
