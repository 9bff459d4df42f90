"""The platform of the computation and the cache: JAX's settings.

JAX takes an accelerator where it finds one. A named platform leaves the others alone:
`--platform=cpu` takes no memory of a GPU, and `--platform=gpu` fails where JAX would have
gone on with the CPU and a warning.
"""

import jax
from jax.extend import backend

from bounds.cli.main import one_line
from bounds.cli.shared.groups import Platform
from bounds.cli.shared.kept_programs import keep_programs
from bounds.cli.shared.longest_input import avoid_miscompiling
from jax_models.errors import InputError

# Values of `jax_platforms` by flag: the first that works is the default device.
WANTED = {"cpu": "cpu", "gpu": "cuda,cpu", "cuda": "cuda,cpu", "tpu": "tpu,cpu"}
# JAX's names of the platforms.
NAMES = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "tpu": "tpu"}
REMEDIES = {
    "cpu": "unset JAX_PLATFORMS, which names others",
    "gpu": "beside an NVIDIA driver it takes pip install 'attention-bounds[cuda]'",
    "tpu": "on a TPU machine it takes pip install 'attention-bounds[tpu]'",
}


def prepare_jax(options: Platform) -> None:
    """Turns double precision on and takes the platform of the flags, or refuses."""
    jax.config.update("jax_enable_x64", True)
    request_platform(options)
    require_platform(options)


def request_platform(options: Platform) -> None:
    """Sets JAX's platform and cache; JAX does not look for devices yet."""
    keep_programs(options.compilation_cache)
    avoid_miscompiling(options)
    if options.platform is not None:
        jax.config.update("jax_platforms", WANTED[options.platform])


def require_platform(options: Platform) -> None:
    """Raises `InputError` unless JAX computes on the platform of the flags."""
    if options.platform is None:
        return
    name, trouble = NAMES[options.platform], ""
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
