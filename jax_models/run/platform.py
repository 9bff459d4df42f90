"""The platform that JAX computes on, by name.

A named platform leaves the others alone: `cpu` takes no memory of a GPU, and `gpu` fails
where JAX would go on with the CPU.
"""

import jax
from jax.extend import backend

from jax_models.errors import InputError

# By name the value of `jax_platforms`, whose first platform that works is the default,
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


def set_platform(name: str | None) -> None:
    """Sets JAX's platform before it looks for devices; None leaves the default."""
    if name is not None:
        jax.config.update("jax_platforms", WANTED[name][0])


def require_platform(name: str | None) -> None:
    """Raises `InputError` unless JAX computes on a platform; None is any."""
    if name is None:
        return
    (_, own), trouble = WANTED[name], ""
    try:
        if jax.default_backend() == own:
            return
    except (RuntimeError, AssertionError) as error:  # the latter without any platform
        trouble = f" ({' '.join(str(error).split())})" if str(error) else ""
    jax.config.update("jax_platforms", None)
    found = sorted(
        {one.platform for kind in backend.backends().values() for one in kind.devices()}
    )
    if own in found:
        raise InputError(
            f"--platform={name}: this process computes on {jax.default_backend()} "
            f"already; start one of its own for {name}"
        )
    raise InputError(
        f"--platform={name}: JAX has no such platform here{trouble}, only "
        f"{', '.join(found)}; {REMEDIES[own]}"
    )
