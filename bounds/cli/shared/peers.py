"""How several processes of one command notice that one of them has stopped.

JAX's processes meet at a service of process 0. One that sees its connection to it break
aborts on the spot, with a dump of its stack; process 0 misses the others by their
heartbeats alone, after a minute and more. So these connections, which carry little, pass
through here: in process 0 from the port of `--coordinator` to a service of its own
machine, in the others from a port of their own machine to there. Whoever stops closes
them, however it ends. What is left then says so, in one line, and exits.
"""

import atexit
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from bounds.cli.main import PROGRAM

LOST = (
    "another process stopped or was not found; see what it says itself. The same "
    "commands continue where they stopped"
)
# Seconds in which a process may find out by itself and say more, at work and at the end,
# where processes leave one after another.
GRACE, GRACE_AT_THE_END = 2.0, 20.0
# A machine that is gone closes nothing: seconds until it is asked, between questions, and
# how many stay without an answer.
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
LOCAL = "127.0.0.1"
# What JAX's clients, which speak HTTP/2, say first.
PREFACE = b"PRI * HTTP/2.0"

# Seconds until what listens is there.
PATIENCE = 15.0

_done, _ending = threading.Event(), threading.Lock()


def listen_to_others(port: int) -> tuple[str, threading.Semaphore]:
    """Start what the other processes connect to; for process 0.

    Args:
        port: That of `--coordinator`.

    Returns:
        The address where JAX's service is to be, and what every other process that comes
        releases once.

    Raises:
        OSError: The port is taken.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    with socket.create_server((LOCAL, 0)) as free:  # a port that was free a moment ago
        service = free.getsockname()[:2]
    came = threading.Semaphore(0)
    _start(_relay, listener, service, came)
    return _address(service), came


def expect_others(came: threading.Semaphore, count: int, patience: float) -> None:
    """End process 0 in a line unless the others come, before JAX does it with a dump.

    Args:
        came: Of `listen_to_others`.
        count: How many others there are.
        patience: Seconds until all of them have to be there.
    """
    _start(_expect, came, count, patience)


def reach_leader(host: str, port: int) -> str:
    """Start what connects to process 0, which listens; for the others.

    Args:
        host: That of `--coordinator`.
        port: Likewise.

    Returns:
        The address where JAX finds the service.
    """
    listener = socket.create_server((LOCAL, 0))
    _start(_relay, listener, (host, port), None)
    return _address(listener.getsockname()[:2])


def leave_at_once_after_errors() -> None:
    """Keep JAX from waiting, at the exit of a process that failed, for the others."""
    atexit.register(_leave)


def finish() -> None:
    """Note that the work is done: from here on the processes end one by one."""
    _done.set()


def _leave() -> None:
    if not _done.is_set():
        _exit()


def _end(message: str) -> NoReturn:
    _ending.acquire()  # for good: one line is enough
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    _exit()


def _exit() -> NoReturn:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def _expect(came: threading.Semaphore, count: int, patience: float) -> None:
    end = time.monotonic() + patience
    for found in range(count):
        if not came.acquire(timeout=max(0.0, end - time.monotonic())):
            _end(
                f"process 0 of {count + 1} is found by {found} of the others within "
                f"{patience:g} s; start all of them with the same --coordinator"
            )


def _relay(
    listener: socket.socket,
    target: tuple[str, int],
    came: threading.Semaphore | None,
) -> None:
    """Join every connection to one of its own to the target, until the process ends."""
    while True:
        accepted, _ = listener.accept()
        _start(_join, accepted, target, came)


def _join(
    accepted: socket.socket,
    target: tuple[str, int],
    came: threading.Semaphore | None,
) -> None:
    with accepted:
        said = b""
        with contextlib.suppress(OSError):
            said = accepted.recv(len(PREFACE), socket.MSG_PEEK | socket.MSG_WAITALL)
        if said != PREFACE:  # one that only looks whether somebody listens
            return
        if came is not None:
            came.release()
        reached = _reach(target)
        if reached is None:
            _await_the_end()
        with reached:
            leads = came is not None
            remote, local = (accepted, reached) if leads else (reached, accepted)
            _keep_alive(remote)
            _start(_send_on, local, remote)
            _send_on(remote, local)
            # JAX's end stays open: it would abort.
            _await_the_end()


def _send_on(source: socket.socket, sink: socket.socket) -> None:
    """Pass on all that comes."""
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)


def _reach(target: tuple[str, int]) -> socket.socket | None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            return socket.create_connection(target)
        time.sleep(0.05)
    return None


def _keep_alive(remote: socket.socket) -> None:
    remote.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            remote.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _await_the_end() -> NoReturn:
    """End the process, if it does not do so itself."""
    began = time.monotonic()
    while time.monotonic() - began < (GRACE_AT_THE_END if _done.is_set() else GRACE):
        time.sleep(0.05)
    _end(LOST)


def _address(where: tuple[str, int]) -> str:
    return f"{where[0]}:{where[1]}"


def _start(function: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()
