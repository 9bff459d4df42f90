"""Flags that distribute work: over the devices of a process, and over processes.

Process 0 leads: it alone saves results, and the others compute their share of the work.
"""

import contextlib
import dataclasses
import socket
import time
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from bounds.cli.shared.groups import OneInput
from bounds.cli.shared.platforms import request_platform, require_platform
from bounds.store.results import cell_key
from bounds.store.sweep import Cell
from jax_models.errors import InputError
from jax_models.run.mesh import check_agreement, device_mesh

CLUSTER_FLAGS = ("coordinator", "num_processes", "process_id")
# Seconds a process looks for the others before it fails, after which a silent process
# counts as lost, and for which a process that has ended waits for the others.
PATIENCE, SILENCE, PARTING = 60, 30, 60
LARGEST_PORT = 65535


@dataclasses.dataclass(frozen=True)
class Devices:
    """Devices of a command, and this process's part in the work."""

    mesh: Mesh | None  # that positions are shared out over; None is the default device
    leads: bool  # True in the process that saves results; the others only compute

    def agree(self, cells: Sequence[Cell], chosen: list[bool]) -> list[bool]:
        """The leading process's `chosen`; refuses processes with other work, `cells`."""
        check_agreement("".join(cell_key(cell.config) for cell in cells).encode())
        return list(map(bool, self.tell(chosen)))

    def tell(self, numbers: Sequence[int]) -> Sequence[int]:
        """Returns the leading process's numbers; each process gives equally many."""
        told = multihost_utils.broadcast_one_to_all(np.array(numbers, np.int32))
        return np.asarray(told).tolist()


ALONE = Devices(None, True)


def open_devices(options: OneInput) -> Devices:
    """Devices of the flags, connected to other processes before JAX computes anything."""
    named = {name: getattr(options, name) for name in CLUSTER_FLAGS}
    given = [name for name in named if named[name] is not None]
    if given and len(given) < len(CLUSTER_FLAGS):
        missing = [f"--{name}" for name in CLUSTER_FLAGS if name not in given]
        raise InputError(
            f"--{given[0]} is for several processes, which also need "
            f"{' and '.join(missing)}"
        )
    request_platform(options)
    if options.num_devices is not None:
        # Only a CPU heeds the option, and only once: JAX that has its devices refuses,
        # and `device_mesh` then reports their number.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", options.num_devices)
    if given:
        _connect(*named.values())
    require_platform(options)
    if not given and options.num_devices is None:
        return ALONE
    return Devices(device_mesh(options.num_devices), jax.process_index() == 0)


def _await_leader(host: str, port: int, name: str) -> None:
    """Waits until process 0 listens; raises `InputError` after `PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((host, port), timeout=PATIENCE).close()
        except OSError as error:
            if time.monotonic() > end:
                raise InputError(
                    f"{name} does not find process 0 at {host}:{port} within "
                    f"{PATIENCE} s ({error}); start process 0 there"
                ) from error
            time.sleep(0.2)


@contextlib.contextmanager
def explained_loss() -> Iterator[None]:
    """Turns JAX's error about a lost process into an `InputError` of one line."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise InputError(
            "another process stopped or was not found; see what it says itself. The same "
            f"commands continue where they stopped ({str(error).splitlines()[0]})"
        ) from error


def _connect(coordinator: str, count: int, number: int) -> None:
    if number >= count:
        raise InputError(
            f"--process_id={number}, but --num_processes={count} counts from 0 to "
            f"{count - 1}"
        )
    host, _, port = coordinator.rpartition(":")
    if not (
        host and port.isascii() and port.isdigit() and 1 <= int(port) <= LARGEST_PORT
    ):
        raise InputError(
            f"--coordinator={coordinator}: expected host:port, as in 10.0.0.1:1234"
        )
    if number:
        # JAX ends a process that does not find process 0 with a stack trace.
        _await_leader(host, int(port), f"process {number} of {count}")
    else:
        try:
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise InputError(
                f"--coordinator={coordinator}: process 0 cannot listen at port "
                f"{port} ({error}); name one that is free"
            ) from error
        print(
            f"waiting up to {PATIENCE} s for {count} processes at {coordinator}",
            flush=True,
        )
    # JAX would hold back a SIGTERM, to notify others, and compute on.
    with contextlib.suppress(AttributeError):
        jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            count,
            number,
            initialization_timeout=PATIENCE,
            heartbeat_timeout_seconds=SILENCE,
            shutdown_timeout_seconds=PARTING,
        )
    except RuntimeError as error:
        raise InputError(
            f"process {number} of {count} does not find the others at "
            f"{coordinator} within {PATIENCE} s: {error}"
        ) from error
