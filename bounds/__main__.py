"""`python -m bounds COMMAND` is the same as `attention-bounds COMMAND`."""

import contextlib
import os
import sys
from typing import NoReturn

from bounds.cli.signals import RUN, listen


def console() -> NoReturn:
    """Runs the program on the process's arguments and exits with its code."""
    RUN.loading = RUN.alone = True  # the former until a command runs
    listen()
    from bounds.cli.main import main

    code = main(sys.argv[1:])
    with RUN.deciding:
        RUN.code = code
    if code > 128:
        # Threads of JAX that still work crash where the interpreter ends in order.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    console()
