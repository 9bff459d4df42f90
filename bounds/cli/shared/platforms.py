"""The flags on what a command computes on and keeps of it, and JAX's settings.

JAX takes an accelerator where it finds one. To name the platform leaves the others alone:
`--platform=cpu` takes no memory of a GPU, `--platform=gpu` fails where JAX would have
gone on with the CPU and a warning.
"""

import jax
from absl import flags
from jax.extend import backend

from bounds.cli.main import one_line
from bounds.cli.shared.kept_programs import define_kept_programs, keep_programs
from bounds.cli.shared.longest_input import avoid_miscompiling
from jax_models.errors import InputError

# What JAX is asked for, by what is typed: the first that works is the default device.
WANTED = {"cpu": "cpu", "gpu": "cuda,cpu", "cuda": "cuda,cpu", "tpu": "tpu,cpu"}
# What JAX calls the platform.
NAMES = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "tpu": "tpu"}
REMEDIES = {
    "cpu": "unset JAX_PLATFORMS, which names others",
    "gpu": "beside an NVIDIA driver it takes pip install 'attention-bounds[cuda]'",
    "tpu": "on a TPU machine it takes pip install 'attention-bounds[tpu]'",
}


def define_platform(values: flags.FlagValues) -> None:
    """Add `--platform` and `--compilation_cache`."""
    flags.DEFINE_enum(
        "platform",
        None,
        tuple(WANTED),
        "What is computed on (gpu and cuda are the same); by default what JAX finds, an "
        "accelerator before the CPU.",
        flag_values=values,
    )
    define_kept_programs(values)


def prepare_jax(options: flags.FlagValues) -> None:
    """Turn double precision on and take the platform that the flags name.

    Args:
        options: Flags with `define_platform`.

    Raises:
        InputError: JAX has no such platform, or has taken another, or programs cannot be
            kept where the flags say.
    """
    jax.config.update("jax_enable_x64", True)
    request_platform(options)
    require_platform(options)


def request_platform(options: flags.FlagValues) -> None:
    """Ask JAX for what the flags name; it does not look for devices yet.

    Raises:
        InputError: Programs cannot be kept where the flags say.
    """
    keep_programs(options.compilation_cache)
    avoid_miscompiling(options)
    if options.platform is not None:
        jax.config.update("jax_platforms", WANTED[options.platform])


def require_platform(options: flags.FlagValues) -> None:
    """Raise `InputError` unless JAX computes on the platform that the flags name."""
    if options.platform is None:
        return
    name, trouble = NAMES[options.platform], ""
    try:
        if jax.default_backend() == name:
            return
    except (RuntimeError, AssertionError) as error:  # the latter where none is left
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
