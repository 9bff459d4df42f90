"""The models of the influence tests: one set of shapes, every architecture.

Shapes are shared, n = 12 tokens, V = 3 symbols, H = 2 heads, d = 8, f = 16, so that
what differs between two compiled programs is the architecture alone.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from jax_models.model.mask import MASKS
from jax_models.weighting import WEIGHTINGS
from tests.architecture import random_model

SHAPE = {"num_heads": 2, "d_model": 8, "d_ff": 16, "vocab_size": 3, "dtype": "float64"}
TOKENS = np.random.default_rng(0).integers(0, 3, 12)

TEMPERATURES = {
    "none": None,
    "inverse_log": jm.InverseLogTemperature(1.5),
    "power of the position": jm.PowerTemperature(1.5, -0.3, "position"),
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "mask": MASKS,
    "weighting": tuple(WEIGHTINGS),
    "num_layers": (1, 2, 3),
    "score": ("dot_product", "scaled_dot_product", "additive"),
    "layer_norm": ("none", "pre", "post"),
    "combine": ("residual", "concat"),
    "activation": ("relu", "gelu", "relu_squared"),
    "gated": (False, True),
    "target": ("activation", "logits"),
    "temperature": tuple(TEMPERATURES),
    # Without positions equal tokens have equal scores, so every row has ties.
    "position": ("sinusoidal", None),
    "final_norm": (False, True),
}


def allowed(case):
    """The format's restrictions: concatenation without norms, positions seen before."""
    concat = case.get("combine") == "concat"
    of_position = case.get("temperature") == "power of the position"
    return (not concat or case.get("layer_norm", "none") == "none") and (
        not of_position or "future" in case.get("mask", "future")
    )


def build(case, seed=0) -> Any:
    """The model of a case; factors that it leaves out have their usual values."""
    options = {"num_layers": 2, "num_classes": 3, **SHAPE, **case}
    options["temperature"] = TEMPERATURES[case.get("temperature", "none")]
    options.pop("target", None)
    block_biases = options.pop("block_biases", True)
    model = random_model(seed, **options)
    return model if block_biases else without_block_biases(model)


def without_block_biases(model) -> Any:
    none = dict.fromkeys(("b1", "b2", "gate_bias"))
    layers = tuple(
        dataclasses.replace(
            layer, feed_forward=dataclasses.replace(layer.feed_forward, **none)
        )
        for layer in model.layers
    )
    return dataclasses.replace(model, layers=layers)


def widest_query(mask):
    """A query row that sees every other one."""
    return 0 if "past" in mask else len(TOKENS) - 1


def edit_weights(model, depth=None, **edits) -> Any:
    """The model with arrays replaced by functions of them, by name; of one layer or all."""

    def edit(path, leaf):
        name = jax.tree_util.keystr(path[-1:]).strip(".")
        here = depth is None or f"layers[{depth}]" in jax.tree_util.keystr(path)
        return edits[name](leaf) if here and name in edits else leaf

    return jax.tree_util.tree_map_with_path(edit, model)


def scaled_weights(model, depth=None, **factors) -> Any:
    """The model with the named kinds of weights multiplied, `query=3.0` for example."""
    times = {k: lambda x, f=f: x * jnp.asarray(f, x.dtype) for k, f in factors.items()}
    return edit_weights(model, depth, **times)
