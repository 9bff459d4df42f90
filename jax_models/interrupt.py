"""The request of a signal to end, which long loops read between two of their steps.

A signal's handler that raises does so wherever Python is at that moment: within a garbage
collection the exception is printed and forgotten, within a compiler it is a crash.
"""

import signal
import threading

_requests: list[int] = []  # numbers of the signals that came
request_interrupt = _requests.append


class Terminated(KeyboardInterrupt):
    """SIGTERM: whatever handles an interrupt handles it too."""


def raise_requested() -> None:
    """Raises the requested interrupt in the main thread, `Terminated` if by SIGTERM."""
    if _requests and threading.current_thread() is threading.main_thread():
        terminated = _requests[0] == signal.SIGTERM
        raise Terminated if terminated else KeyboardInterrupt
