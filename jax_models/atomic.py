"""Files that are whole or not there, whatever kills the writer.

A file is written beside its final place, flushed to the disk and renamed over it, so
that a reader never sees half of one.
"""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path


def write_atomically(
    path: str | os.PathLike[str],
    data: bytes,
    # called with the complete file before it takes its place; what it raises leaves the
    # place as it was
    check: Callable[[Path], None] = lambda written: None,
) -> None:
    """Writes a file in a folder that exists, whole or not at all."""
    path = Path(path)
    # Not mkstemp: its files are readable by their owner only.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        check(beside)
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            # A full disk names no file; a folder in the way, the file beside it.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the system can open folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
