"""The folder in which JAX keeps compiled programs for later processes.

JAX looks a program up by its computation, version, options and device with its instruction
set: unlike machines may share a folder.
"""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import filelock
import jax

# Largest size of the folder; beyond it the least recently used programs go.
MOST_BYTES = 2**30
# Programs that compile faster are not kept: a look-up takes as long.
LEAST_SECONDS = 0.1
# Seconds to wait for another process before the folder is used as it is.
PATIENCE = 1.0
# Linux gives a process 65530 memory maps, and every compiled program takes some.
MOST_MAPS = 40_000


def keep_programs(named: str | None) -> None:
    """Turns JAX's cache of compiled programs on in a folder, or off for "off".

    None takes the user's folder unless JAX has one, and keeps nothing if that cannot be
    written; an `OSError` where another folder cannot be.
    """
    if named == "off":
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = user_folder() if named is None else Path(named)
    config: Any = jax.config
    kept = config.jax_compilation_cache_dir
    told = kept is not None or not config.jax_enable_compilation_cache
    if folder is None or kept == str(folder) or (named is None and told):
        return
    try:
        mend(folder)
    except OSError:
        if named is None:
            return
        raise
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
    cpu = Path("/proc/cpuinfo")  # of Linux
    avx = cpu.is_file() and "avx512f" in cpu.read_text()
    if avx and config.jax_logging_level == "NOTSET":
        # There XLA counts a preference that it added itself among the instructions that
        # the processor lacks, and logs this for every program that it loads.
        jax.config.update("jax_logging_level", "CRITICAL")
        for name in ("jax", "jaxlib"):  # messages from Python stay
            logging.getLogger(name).setLevel(logging.WARNING)


def user_folder() -> Path | None:
    """Default folder of compiled programs; None where the user's home is unknown."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return Path(base) / "attention-bounds" if os.path.isabs(base) else None


def mend(folder: Path) -> None:
    """Creates the folder, or removes programs that a killed process cut short."""
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


def release_programs() -> None:
    """Clears JAX's compiled programs if the process has many memory maps (on Linux)."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
