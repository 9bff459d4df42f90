"""Transformers whose weights are written down: one module per language.

Each function's docstring is the argument why it works. A new construction is one module
and one row in `PRESETS`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jax_models.arguments import choose_name
from jax_models.constructions.anbn import anbn_one_layer_transformer, anbn_transformer
from jax_models.constructions.average_parity import average_parity_transformer
from jax_models.constructions.first import first_transformer
from jax_models.constructions.hard_parity import hard_parity_transformer
from jax_models.constructions.normalised_parity import normalised_parity_transformer
from jax_models.constructions.ones import ones_transformer
from jax_models.constructions.parity import parity_transformer
from jax_models.constructions.published import (
    PublishedMargin,
    largest_epsilon,
    measure_published,
    published_first_transformer,
    published_parity_transformer,
)
from jax_models.constructions.rnn import rnn_parity
from jax_models.errors import InputError
from jax_models.model.transformer import Transformer

__all__ = [
    "PRESETS",
    "PRESET_LANGUAGES",
    "PublishedMargin",
    "anbn_one_layer_transformer",
    "anbn_transformer",
    "average_parity_transformer",
    "build_preset",
    "first_transformer",
    "hard_parity_transformer",
    "largest_epsilon",
    "measure_published",
    "normalised_parity_transformer",
    "ones_transformer",
    "parity_transformer",
    "preset_parameters",
    "published_first_transformer",
    "published_parity_transformer",
    "rnn_parity",
]

PRESETS: Mapping[str, Callable[..., Transformer]] = {
    "parity": parity_transformer,
    "normalised_parity": normalised_parity_transformer,
    "first": first_transformer,
    "ones": ones_transformer,
    "anbn": anbn_transformer,
    "anbn_one_layer": anbn_one_layer_transformer,
    "hard_parity": hard_parity_transformer,
    "average_parity": average_parity_transformer,
    "published_parity": published_parity_transformer,
    "published_first": published_first_transformer,
}
"""The constructions that commands know by name."""

PRESET_LANGUAGES: Mapping[str, str] = {
    "ones": "ones",
    **dict.fromkeys(("anbn", "anbn_one_layer"), "anbn"),
    **dict.fromkeys((name for name in PRESETS if "parity" in name), "parity"),
}
"""Keys of `LANGUAGES` by construction; the constructions of FIRST have none."""


def preset_parameters(name: str) -> tuple[str, ...]:
    """Returns the names of the parameters that a preset takes.

    Args:
        name: A key of `PRESETS`.

    Returns:
        Parameter names, "dtype" among them.

    Raises:
        InputError: if there is no such preset.
    """
    build = PRESETS[choose_name("preset", name, [*PRESETS])]
    return tuple(inspect.signature(build).parameters)


def build_preset(name: str, **parameters: Any) -> Transformer:
    """Returns the construction called `name`.

    Args:
        name: A key of `PRESETS`.
        **parameters: What its function takes by keyword.

    Returns:
        The model.

    Raises:
        InputError: if there is no such preset, it takes no such parameter, or it refuses
            a value.
    """
    known = preset_parameters(name)
    for parameter in parameters:
        if parameter not in known:
            raise InputError(
                f"preset {name!r} takes no {parameter!r}; it takes {', '.join(known)}"
            )
    return PRESETS[name](**parameters)


@functools.cache
def is_hard_preset(name: str) -> bool:
    """Whether a construction has hard attention, whatever its parameters."""
    # Traced, since its arrays would start a device before a caller chooses one.
    build = functools.partial(build_preset, name, dtype="float32")
    return jax.eval_shape(build).is_hard
