"""Models in which large terms cancel, so that rounding is relative to what is gone.

One or two layers, d = 4, one head, three neurons. A large common part of the rows is
removed by rows of weights whose entries sum to zero, or by a bias. What remains of a
quantity is off by u times the common part, and in each model one quantity's rounding
governs the influence.
"""

from typing import Any

import numpy as np

from benchmarks import reference
from jax_models.format.build import build_model

TOKENS = np.array([0, 1, 2, 0, 1])
ATTENTION, BLOCK = "layers.0.attention.", "layers.0.ffn."


def quiet(seed, num_layers=1, vocab_size=3, **options) -> tuple[Any, Any]:
    """Configuration and tensors of a model of ordinary size, no position encoding."""
    draw = np.random.default_rng(seed)
    layer = {
        "weighting": "softmax",
        "mask": "none",
        "score": options.pop("score", "dot_product"),
        "temperature": None,
    }
    config = {
        "format": "attention-bounds/1",
        "layer_norm": "none",
        "layer_norm_epsilon": 1e-2,
        "activation": "relu",
        **options,
        "layers": [layer] * num_layers,
    }
    tensors = {"embedding": draw.normal(size=(vocab_size, 4))}
    if config.get("final_norm"):
        tensors |= {"final_norm.scale": np.ones(4), "final_norm.bias": np.zeros(4)}
    for depth in range(num_layers):
        attention, block = f"layers.{depth}.attention.", f"layers.{depth}.ffn."
        for part in ("query", "key", "value"):
            tensors[attention + part] = draw.normal(size=(1, 2, 4))
            tensors[attention + part + "_bias"] = np.zeros((1, 2))
        if layer["score"] == "additive":
            tensors[attention + "score_vector"] = draw.normal(size=(1, 2))
        tensors[attention + "output"] = draw.normal(size=(4, 2))
        tensors[attention + "output_bias"] = np.zeros(4)
        tensors[block + "w1"] = draw.normal(size=(3, 4))
        tensors[block + "b1"] = draw.normal(size=3)
        tensors[block + "w2"] = draw.normal(size=(4, 3))
        tensors[block + "b2"] = np.zeros(4)
        if config["layer_norm"] != "none":
            for norm in (1, 2):
                tensors[f"layers.{depth}.norm{norm}.scale"] = np.ones(4)
                tensors[f"layers.{depth}.norm{norm}.bias"] = np.zeros(4)
    return config, tensors


def without_sum(weight):
    """The weights with rows that ignore what all entries have in common."""
    return weight - weight.mean(axis=-1, keepdims=True)


def exact_influence(config, tensors, tokens, **options):
    """With 60 digits, of the stored float64 weights."""
    arithmetic = reference.multiprecision(60)
    return reference.influence(
        config, tensors, tokens, arithmetic=arithmetic, **options
    )


def model(config, tensors) -> Any:
    """The model of these tensors."""
    return build_model(config, tensors)
