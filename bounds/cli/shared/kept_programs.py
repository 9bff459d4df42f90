"""The flag that says where compiled programs are kept: JAX's persistent cache.

JAX finds a program again by what it computes, its own version, the compiler's options, and
the device, of a processor with its instructions: a folder may be shared by machines that
are not alike, and none runs what another's processor alone can do.
"""

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import filelock
import jax
from absl import flags

from jax_models.errors import InputError

FLAG = "compilation_cache"
OFF = "off"
# What is kept at most: of what is beyond it the least recently used goes.
MOST_BYTES = 2**30
# Programs that compile faster are not kept: to look them up takes as long.
LEAST_SECONDS = 0.1
# Seconds that are waited for another process before the folder is used as it is.
PATIENCE = 1.0


def define_kept_programs(values: flags.FlagValues) -> None:
    """Add `--compilation_cache`."""
    flags.DEFINE_string(
        FLAG,
        None,
        "Folder in which compiled programs are kept for later runs, at most 1 GiB, or "
        f"{OFF}; by default attention-bounds in the user's cache folder, or what JAX's "
        "own settings say.",
        flag_values=values,
    )
    flags.register_validator(
        FLAG,
        lambda folder: folder != "",
        f"expected a folder, or {OFF}",
        flag_values=values,
    )


def keep_programs(named: str | None) -> None:
    """Let JAX find what it compiled in earlier runs, where it was not told otherwise.

    Args:
        named: What `--compilation_cache` says.

    Raises:
        InputError: The folder that it names cannot be written. Where it names none
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
    # XLA's own caches have no bound.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # What cannot be read or written, as where the disk is full, is compiled.
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache entry"
    )
    if "avx512f" in _processor() and _setting("jax_logging_level") == "NOTSET":
        # There XLA counts a preference that it added itself among the instructions that
        # the processor lacks, and says so of every program that it loads.
        jax.config.update("jax_logging_level", "CRITICAL")
        for name in ("jax", "jaxlib"):  # what is said in Python still is
            logging.getLogger(name).setLevel(logging.WARNING)


def user_folder() -> Path | None:
    """Returns where programs are kept by default; None where no user is known."""
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
    """Make a folder of programs, or remove what a process was killed while it wrote.

    JAX writes a program, then when it was used, both under a lock. It would take a
    program that was cut short for one that is there.

    Args:
        folder: Where programs are kept.

    Raises:
        OSError: It cannot be made or written.
    """
    # Who may write here may have us run anything.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / ".lockfile", timeout=PATIENCE):
            for program in folder.glob("*-cache"):
                used = program.with_name(program.name.removesuffix("cache") + "atime")
                if not used.exists():
                    program.unlink()
    except filelock.Timeout:  # whoever holds it mends, or has mended
        pass


def _setting(name: str) -> Any:
    """Returns a setting of JAX, whose type does not list them."""
    return getattr(jax.config, name)


def _processor() -> str:
    """Returns what Linux says of the processor, nothing elsewhere."""
    told = Path("/proc/cpuinfo")
    return told.read_text() if told.is_file() else ""
