"""Models with another attention weighting, temperature or float type."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_models.format.model_check import check_model
from jax_models.jax_arguments import check_float_type
from jax_models.model.attention import Attention, Schedule
from jax_models.model.pytree import map_once
from jax_models.model.temperature import ConstantTemperature, PowerTemperature
from jax_models.model.transformer import Transformer
from jax_models.weighting import make_weighting


def with_weighting(model: Transformer, weighting: str) -> Transformer:
    """Returns the model with every layer's attention weighted in another way.

    Args:
        model: a transformer.
        weighting: softmax, leftmost_hard, rightmost_hard or average_hard. A layer that
            is hard already keeps its tie resolution.

    Returns:
        A model that shares all arrays with the given one.

    Raises:
        InputError: for an unknown name, and an invalid model.
    """
    model = check_model(model)

    def change(attention: Attention) -> Attention:
        resolution = getattr(attention.weighting, "tie_resolution", None)
        found: Any = make_weighting(weighting)
        if found.hard:
            found = dataclasses.replace(found, tie_resolution=resolution)
        return dataclasses.replace(attention, weighting=found)

    return _map_attention(model, change)


def with_temperature(
    model: Transformer, temperature: Schedule | float | None
) -> Transformer:
    """Returns the model with another temperature in every layer.

    Args:
        model: a transformer.
        temperature: the schedule; a number is a constant one, None means 1.

    Returns:
        A model that shares all other arrays with the given one.

    Raises:
        InputError: for a value that is no positive temperature, and an invalid model.
    """
    schedule: Any = temperature
    return check_model(
        _map_attention(
            check_model(model),
            lambda old: dataclasses.replace(old, temperature=schedule),
        )
    )


def at_length(model: Transformer, length: int) -> Transformer:
    """Returns the model at a length: temperatures are numbers or vary by row."""

    def settle(attention: Attention) -> Attention:
        # Models that differ only in temperature schedules then have one pytree structure and
        # share one compiled program. A temperature of the row's position is not one number.
        schedule = attention.temperature
        if schedule is None:
            value = jnp.ones((), model.dtype)
        elif isinstance(schedule, PowerTemperature) and schedule.of == "position":
            return attention
        else:
            value = schedule(length, jnp.arange(1), model.dtype)
        return dataclasses.replace(attention, temperature=ConstantTemperature(value))

    return _map_attention(model, settle)


def with_dtype(model: Transformer, dtype: Any) -> Transformer:
    """Returns the model with its parameters rounded to a float type.

    Args:
        model: a transformer.
        dtype: float32 or float64.

    Returns:
        The model; the given one's arrays are shared where they have that type.

    Raises:
        InputError: for another type, float64 where JAX has 64-bit floats switched off,
            and an invalid model.
    """
    check_float_type(dtype, "the model asked for")
    model = check_model(model)

    def cast(leaf: Any) -> Any:
        # A temperature may be a Python number, which takes the type it meets.
        return leaf.astype(dtype) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(cast, model)


def _map_attention(
    model: Transformer, change: Callable[[Attention], Attention]
) -> Transformer:
    # A layer that stands in several places stays one object.
    layers = map_once(
        lambda layer: dataclasses.replace(layer, attention=change(layer.attention)),
        model.layers,
    )
    return dataclasses.replace(model, layers=layers)
