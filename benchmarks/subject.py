"""The random models and inputs that benchmarks measure, from the config of a row."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.script import Config
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.request import InfluenceRequest
from jax_models import Transformer, random_transformer

# Small widths, so that what grows with the length is seen.
SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}
OPTIONAL = ("weighting", "mask", "scale", "layer_norm", "position")


def random_model(config: Config) -> Transformer:
    """Returns the random transformer that a config describes.

    Its queries are multiplied by `query_factor`, where the config has one: a large factor
    peaks the attention of every layer.
    """
    given = {name: config[name] for name in (*SIZES, *OPTIONAL) if name in config}
    model = random_transformer(
        jax.random.key(config["seed"]),
        num_layers=config["layers"],
        dtype=config["dtype"],
        **given,
    )
    factor = config.get("query_factor", 1)
    return model if factor == 1 else sharpen(model, factor)


def change_attention(model: Transformer, change: Callable[[Any], Any]) -> Transformer:
    """Returns a model with `change` applied to the attention of every layer."""
    layers = tuple(
        dataclasses.replace(layer, attention=change(layer.attention))
        for layer in model.layers
    )
    return dataclasses.replace(model, layers=layers)


def sharpen(model: Transformer, factor: float) -> Transformer:
    """Returns a model with the queries of every layer multiplied by `factor`."""
    return change_attention(
        model, lambda x: dataclasses.replace(x, query=x.query * factor)
    )


def random_tokens(config: Config) -> np.ndarray:
    """Returns the input that a config describes: n independent symbols, int32 [n]."""
    key = jax.random.key(config["seed"] + 1)
    tokens = jax.random.randint(key, (config["n"],), 0, config["vocab_size"])
    return np.asarray(tokens, np.int32)


def asked_anew(request: InfluenceRequest) -> InfluenceRequest:
    """Returns the same request without the base pass that it may hold.

    A timed call then forms the base pass, as part of the answer.
    """
    return dataclasses.replace(request, shared=SharedBase())
