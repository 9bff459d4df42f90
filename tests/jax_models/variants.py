"""Every feature of a model by name, and the model that has some of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jax_models as jm
from jax_models.model.mask import MASKS
from jax_models.weighting import WEIGHTINGS
from tests.architecture import small_model
from tests.bounds.influence.models import allowed as allowed

SHAPE = {"num_heads": 2, "d_model": 8, "d_ff": 12, "vocab_size": 3, "dtype": "float64"}
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 3, 13))

TEMPERATURES = {
    "none": None,
    "constant": jm.ConstantTemperature(0.4),
    "inverse_log": jm.InverseLogTemperature(0.7),
    "power of the length": jm.PowerTemperature(2.0, -0.3),
    "power of the position": jm.PowerTemperature(1.5, -0.5, "position"),
}
FACTORS = {
    "mask": MASKS,
    "temperature": tuple(TEMPERATURES),
    "weighting": tuple(WEIGHTINGS),
    "score": ("dot_product", "scaled_dot_product", "additive"),
    "layer_norm": ("none", "pre", "post"),
    "position": (None, "sinusoidal", "table"),
    "combine": ("residual", "concat"),
    "activation": ("relu", "gelu"),
    "final_norm": (False, True),
    "biases": (False, True),
}


def build(case, **changed) -> Any:
    named = {**case, "temperature": TEMPERATURES[case["temperature"]]}
    options = {**SHAPE, "num_layers": 1, "num_classes": 2, **named, **changed}
    return small_model(1, **options)
