"""Interrupts that a signal handler only records, and long loops raise between steps."""

import signal
import threading

# A handler that raises an exception does so wherever Python is at that moment: in a garbage
# collection the exception is printed and lost, in a compiler it crashes the process.
_requests: list[int] = []  # numbers of the signals that came
request_interrupt = _requests.append


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM; handlers of `KeyboardInterrupt` catch it too."""


def raise_requested() -> None:
    """Raises the first requested interrupt, in the main thread only."""
    if _requests and threading.current_thread() is threading.main_thread():
        terminated = _requests[0] == signal.SIGTERM
        raise Terminated if terminated else KeyboardInterrupt
