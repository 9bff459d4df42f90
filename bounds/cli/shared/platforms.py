"""JAX's settings: its platform, the folder of compiled programs, options of XLA.

A named platform leaves the others alone: `--platform=cpu` takes no memory of a GPU, and
`--platform=gpu` fails where JAX would go on with the CPU. JAX looks a program up by its
computation, version, options and device with its instruction set: unlike machines may
share a folder.
"""

import contextlib
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import filelock
import jax
from jax.extend import backend

from bounds.cli.main import one_line
from bounds.cli.shared.groups import RECORDS, Platform
from jax_models.errors import InputError
from jax_models.run.compiler import SAFE_ROWS, avoid_miscompilation

# By flag the value of `jax_platforms`, whose first platform that works is the default,
# and JAX's name of the platform.
WANTED = {
    **{"cpu": ("cpu", "cpu"), "tpu": ("tpu,cpu", "tpu")},
    **dict.fromkeys(("gpu", "cuda"), ("cuda,cpu", "gpu")),
}
REMEDIES = {
    "cpu": "unset JAX_PLATFORMS, which names others",
    "gpu": "beside an NVIDIA driver it takes pip install 'attention-bounds[cuda]'",
    "tpu": "on a TPU machine it takes pip install 'attention-bounds[tpu]'",
}


def prepare_jax(options: Platform) -> None:
    """Sets double precision and the flags' platform; refuses one that JAX lacks."""
    if options.DOUBLE:
        jax.config.update("jax_enable_x64", True)
    request_platform(options)
    require_platform(options)


def request_platform(options: Platform) -> None:
    """Sets JAX's cache folder and platform by the flags, before it looks for devices."""
    keep_programs(options.compilation_cache)
    avoid_miscompiling(options)
    if options.platform is not None:
        jax.config.update("jax_platforms", WANTED[options.platform][0])


def require_platform(options: Platform) -> None:
    """Raises `InputError` unless JAX computes on the platform of the flags."""
    if options.platform is None:
        return
    (_, name), trouble = WANTED[options.platform], ""
    try:
        if jax.default_backend() == name:
            return
    except (RuntimeError, AssertionError) as error:  # the latter without any platform
        trouble = f" ({one_line(error)})" if str(error) else ""
    jax.config.update("jax_platforms", None)
    found = sorted(
        {one.platform for kind in backend.backends().values() for one in kind.devices()}
    )
    if name in found:
        raise InputError(
            f"--platform={options.platform}: this process computes on "
            f"{jax.default_backend()} already; start one of its own for "
            f"{options.platform}"
        )
    raise InputError(
        f"--platform={options.platform}: JAX has no such platform here{trouble}, only "
        f"{', '.join(found)}; {REMEDIES[name]}"
    )


# Largest size of the folder; beyond it the least recently used programs go.
MOST_BYTES = 2**30
# Programs that compile faster are not kept: a look-up takes as long.
LEAST_SECONDS = 0.1
# Seconds to wait for another process before the folder is used as it is.
PATIENCE = 1.0


def keep_programs(named: str | None) -> None:
    """Turns JAX's cache on in the flag's folder, or the default one if JAX has none."""
    # Without the flag nothing is kept where the folder cannot be written.
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
    except OSError as error:
        if named is None:
            return
        raise InputError(
            f"--compilation_cache={named}: cannot be written ({error.strerror}); name "
            "another folder, or off"
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


def avoid_miscompiling(options: object) -> None:
    """Sets the compiler's option for inputs miscompiled without it, before JAX starts."""
    named = getattr(options, "platform", None)
    if named in (None, "cpu") and longest_input(options) > SAFE_ROWS:
        avoid_miscompilation()


def longest_input(options: object) -> int:
    """Upper bound on the number of tokens of the longest input; files count by size."""
    # Each token takes a byte or more.
    sizes = [len((getattr(options, "sequence", None) or "").encode())]
    for name in ("length", "lengths"):
        value = getattr(options, name, None) or 0
        sizes += value if isinstance(value, tuple) else [value]
    for name in ("tokens", "text", *RECORDS):
        if path := getattr(options, name, None):
            with contextlib.suppress(OSError):  # a missing file is refused later
                sizes.append(os.path.getsize(path))
    return max(sizes)
