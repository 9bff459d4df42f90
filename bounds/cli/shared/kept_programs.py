"""Folder of compiled programs: JAX's persistent cache.

JAX looks a program up by its computation, its own version, the compiler's options, and the
device (of a processor with its instructions). So unlike machines may share a folder, and
none runs a program that needs another's processor.
"""

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import filelock
import jax

from jax_models.errors import InputError

FLAG = "compilation_cache"
OFF = "off"
# Largest size of the folder; beyond it the least recently used programs go.
MOST_BYTES = 2**30
# Programs that compile faster are not kept: a look-up takes as long.
LEAST_SECONDS = 0.1
# Seconds to wait for another process before the folder is used as it is.
PATIENCE = 1.0


def keep_programs(named: str | None) -> None:
    """Turns JAX's cache on in the flag's folder, or the default one if JAX has none.

    Raises InputError if a folder that the flag names cannot be written. Without the flag,
    nothing is kept then.
    """
    if named == OFF:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = user_folder() if named is None else Path(named)
    kept = _setting("jax_compilation_cache_dir")
    told = kept is not None or not _setting("jax_enable_compilation_cache")
    if folder is None or kept == str(folder) or (named is None and told):
        return
    try:
        mend(folder)
    except OSError as error:
        if named is None:
            return
        raise InputError(
            f"--{FLAG}={named}: cannot be written ({error.strerror}); name another "
            f"folder, or {OFF}"
        ) from error
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    # XLA's own caches have no size limit.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # A program that cannot be read or written, e.g. on a full disk, is compiled.
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache entry"
    )
    if "avx512f" in _processor() and _setting("jax_logging_level") == "NOTSET":
        # There XLA counts a preference that it added itself among the instructions that
        # the processor lacks, and logs this for every program that it loads.
        jax.config.update("jax_logging_level", "CRITICAL")
        for name in ("jax", "jaxlib"):  # messages from Python stay
            logging.getLogger(name).setLevel(logging.WARNING)


def user_folder() -> Path | None:
    """Default folder of programs; None where no user is known."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else "~/.cache"
    folder = Path(os.path.expanduser(base)) / "attention-bounds"
    return folder if folder.is_absolute() else None


def mend(folder: Path) -> None:
    """Creates the folder, or removes programs that a killed process left incomplete."""
    # Whoever may write here may have this process run anything.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / ".lockfile", timeout=PATIENCE):
            # JAX writes a program, then its time of use, both under the lock. It would
            # take a program that was cut short for a complete one.
            for program in folder.glob("*-cache"):
                used = program.with_name(program.name.removesuffix("cache") + "atime")
                if not used.exists():
                    program.unlink()
    except filelock.Timeout:  # the holder of the lock mends, or has mended
        pass


def _setting(name: str) -> Any:
    """A setting of JAX, whose type does not list its settings."""
    return getattr(jax.config, name)


def _processor() -> str:
    """Linux's description of the processor; empty elsewhere."""
    told = Path("/proc/cpuinfo")
    return told.read_text() if told.is_file() else ""
