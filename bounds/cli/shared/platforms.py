"""JAX's settings by the flags: platform, folder of compiled programs, options of XLA."""

import contextlib
import os

import jax

from bounds.cli.shared.groups import RECORDS, Platform
from jax_models.errors import InputError
from jax_models.run.compiler import SAFE_ROWS, avoid_miscompilation
from jax_models.run.kept_programs import keep_programs
from jax_models.run.platform import require_platform, set_platform


def prepare_jax(options: Platform) -> None:
    """Sets double precision and the flags' platform; refuses one that JAX lacks."""
    if options.DOUBLE:
        jax.config.update("jax_enable_x64", True)
    request_platform(options)
    require_platform(options.platform)


def request_platform(options: Platform) -> None:
    """Sets JAX's cache folder and platform by the flags, before it looks for devices."""
    folder = options.compilation_cache
    try:
        keep_programs(folder)
    except OSError as error:
        raise InputError(
            f"--compilation_cache={folder}: cannot be written ({error.strerror}); name "
            "another folder, or off"
        ) from error
    avoid_miscompiling(options)
    set_platform(options.platform)


def avoid_miscompiling(options: object) -> None:
    """Sets XLA's option against wrong results of the CPU compiler on long inputs."""
    named = getattr(options, "platform", None)
    if named in (None, "cpu") and longest_input(options) > SAFE_ROWS:
        avoid_miscompilation()


def longest_input(options: object) -> int:
    """Upper bound on the tokens of the longest input; of a file, its size in bytes."""
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
