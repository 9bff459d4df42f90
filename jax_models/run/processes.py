"""Processes of one computation, connected by `jax.distributed`; process 0 leads."""

import contextlib
import socket
import time
from collections.abc import Iterator

import jax

from jax_models.errors import InputError

# Seconds a process looks for the others before it fails, after which a silent process
# counts as lost, and for which a process that has ended waits for the others.
PATIENCE, SILENCE, PARTING = 60, 30, 60
LARGEST_PORT = 65535


def connect_processes(coordinator: str, num_processes: int, process_id: int) -> None:
    """Connects this process to the others before JAX computes anything.

    Args:
        coordinator: address host:port of process 0, the same for all.
        num_processes: number of all processes.
        process_id: the number of this one, from 0.

    Raises:
        InputError: for an address that is none or is taken, or others that are not found
            within a minute.
    """
    if process_id >= num_processes:
        raise InputError(
            f"--process_id={process_id}, but --num_processes={num_processes} counts from "
            f"0 to {num_processes - 1}"
        )
    host, _, digits = coordinator.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdigit() else 0
    if not (host and 1 <= port <= LARGEST_PORT):
        raise InputError(
            f"--coordinator={coordinator}: expected host:port, as in 10.0.0.1:1234"
        )
    name = f"process {process_id} of {num_processes}"
    if process_id:
        # JAX ends a process that does not find process 0 with a stack trace.
        _await_leader(host, port, name)
    else:
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            raise InputError(
                f"--coordinator={coordinator}: process 0 cannot listen at port {port} "
                f"({error}); name one that is free"
            ) from error
    # JAX would hold back a SIGTERM, to notify others, and compute on.
    with contextlib.suppress(AttributeError):
        jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=PATIENCE,
            heartbeat_timeout_seconds=SILENCE,
            shutdown_timeout_seconds=PARTING,
        )
    except RuntimeError as error:
        raise InputError(
            f"{name} does not find the others at {coordinator} within {PATIENCE} s: "
            f"{error}"
        ) from error


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
