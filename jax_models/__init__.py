"""Transformers as pytrees and pure functions, with any attention weighting.

A model is data (`Transformer`); `apply` runs it, `load` and `save` exchange it as one
safetensors file, `random_transformer` draws one.
"""

from typing import TYPE_CHECKING, Any

from jax_models.on_demand import find_public

if TYPE_CHECKING:
    from jax_models.public import *  # noqa: F403 - what is promised there is here
    from jax_models.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    """Returns the object of a public name; the first use imports it, and JAX."""
    return find_public(__name__, name)


def __dir__() -> list[str]:
    """Returns the list of public names."""
    return find_public(__name__, "__all__")
