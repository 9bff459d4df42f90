"""JAX's settings: its platform, the folder of compiled programs, options of XLA.

A named platform leaves the others alone: `--platform=cpu` takes no memory of a GPU, and
`--platform=gpu` fails where JAX would go on with the CPU.
"""

import contextlib
import os

import jax
from jax.extend import backend

from bounds.cli.main import one_line
from bounds.cli.shared.groups import RECORDS, Platform
from jax_models.errors import InputError
from jax_models.run.compiler import SAFE_ROWS, avoid_miscompilation
from jax_models.run.kept_programs import keep_programs

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
    folder = options.compilation_cache
    try:
        keep_programs(folder)
    except OSError as error:
        raise InputError(
            f"--compilation_cache={folder}: cannot be written ({error.strerror}); name "
            "another folder, or off"
        ) from error
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
