"""The first that runs: who ends the program is answered in one line, at any moment.

Nothing heavy is imported here, so that an interrupt or SIGTERM is heard while JAX is
loaded. Python hears them between two of its own steps; a program that is deep in a
compiler is ended by a thread that listens too. Whatever is kept is kept whole.
"""

import contextlib
import datetime
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

PROGRAM = "attention-bounds"
# Seconds that the program has to end by itself.
PATIENCE = 3.0
# Where a run keeps what is finished: rows of the store, and files by name.
STORE_NAME = "results.sqlite"
CHECKPOINTS = ("checkpoint.safetensors", "screen-*.npz", "proposal-*.npz")


class Terminated(KeyboardInterrupt):
    """SIGTERM came: all that hears an interrupt hears it too."""


class Run:
    """What is told of the run where it is ended."""

    def __init__(self) -> None:
        """Begin the first run of the process; nothing is being loaded."""
        self.loading = False
        self.alone = False  # the process is the program, and was begun by `console`
        self.begin()

    def begin(self) -> None:
        """Forget an earlier run."""
        self.began = time.time()
        self.folder: Path | None = None
        self.told = threading.Event()

    def tell(self, number: int) -> int:
        """Say once that a signal ended the run; return the exit code.

        Args:
            number: The signal's.
        """
        if not self.told.is_set():
            self.told.set()
            what = "interrupted" if number == signal.SIGINT else "terminated"
            kept = "no part was finished, and the same command begins it again"
            if self.folder is not None and keeps(self.folder, self.began):
                kept = "the same command continues where it stopped"
            with contextlib.suppress(OSError, ValueError, AttributeError):
                print(f"{PROGRAM}: {what}; {kept}", file=sys.stderr, flush=True)
        return 128 + number


RUN = Run()


def keeps(folder: Path, since: float) -> bool:
    """Returns whether a run kept a part of its work.

    Args:
        folder: Where it writes.
        since: When it began, in seconds since 1970.
    """
    for pattern in CHECKPOINTS:
        if any(file.stat().st_mtime >= since for file in folder.glob(pattern)):
            return True
    moment = datetime.datetime.fromtimestamp(since, datetime.UTC).isoformat()
    address = (folder / STORE_NAME).absolute().as_uri() + "?mode=ro"
    with contextlib.suppress(sqlite3.Error):
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=1)) as store:
            # What a batch consists of is written before any of it is found.
            query = (
                "SELECT 1 FROM cells WHERE status = 'done' AND command <> 'batch' "
                "AND finished >= ? LIMIT 1"
            )
            return store.execute(query, [moment]).fetchone() is not None
    return False


def listen() -> None:
    """Turn signals into exceptions, and end a program that does not hear them."""

    def heard(number: int, _: FrameType | None) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)  # the first is answered
        if RUN.loading:  # an exception within a library's own start is a crash
            os._exit(RUN.tell(number))
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    ends = os.pipe()
    os.set_blocking(ends[1], False)
    signal.set_wakeup_fd(ends[1], warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(ends[0],), daemon=True).start()
    for one in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(one) is not signal.SIG_IGN:  # as under nohup
            signal.signal(one, heard)


def _watch(end: int) -> None:
    """End the program where it does not end by itself after a signal."""
    number = 0
    while number not in (signal.SIGINT, signal.SIGTERM):
        number = os.read(end, 1)[0]
    RUN.told.wait(PATIENCE)
    code = RUN.tell(number)
    time.sleep(PATIENCE)
    os._exit(code)


def console() -> NoReturn:
    """Run the program on the process's arguments and exit with its code."""
    RUN.loading = RUN.alone = True  # the former until a command runs
    listen()
    try:
        from bounds.cli.main import main

        code = main(sys.argv[1:])
    except KeyboardInterrupt as error:
        code = RUN.tell(number_of(error))
    sys.exit(code)


def number_of(error: KeyboardInterrupt) -> int:
    """Returns the number of the signal that an exception stands for."""
    return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
