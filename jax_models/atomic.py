"""Atomic writing of files: a file is complete or absent, even if the writer is killed."""

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
    """Writes `data` to `path` atomically; the folder must exist."""
    path = Path(path)
    # Not mkstemp: its files are readable by their owner only.
    # In the same folder: only within one file system is a rename atomic, so that no reader
    # sees a part.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            # Flushed before the rename: else a crash could leave the name with no content.
            os.fsync(file.fileno())
        check(beside)
        os.replace(beside, path)
    # An interrupt too must leave no part behind.
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            # A full disk names no file; a folder in the way, the file beside it.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flushes a folder and the renames in it to the disk, if the system can open folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
