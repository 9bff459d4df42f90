"""The models of the certificate tests: every architecture, one set of shapes."""

from typing import Any

import jax
import numpy as np

import jax_models as jm
from jax_models.mask import MASKS

SHAPE: dict[str, Any] = {
    "num_heads": 2,
    "d_model": 4,
    "d_ff": 8,
    "vocab_size": 3,
    "dtype": "float64",
}
TEMPERATURES = {
    "none": None,
    "inverse_log": jm.InverseLogTemperature(1.5),
    "power of the position": jm.PowerTemperature(1.5, -0.3, "position"),
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "mask": MASKS,
    "num_layers": (1, 2, 3, 4),
    "score": ("dot_product", "scaled_dot_product", "additive"),
    "layer_norm": ("none", "pre", "post"),
    "combine": ("residual", "concat"),
    "activation": ("relu", "gelu"),
    "target": ("activation", "logits"),
    "temperature": tuple(TEMPERATURES),
    "final_norm": (False, True),
    "scale": (0.3, 1.0, 3.0),
    "layer_norm_epsilon": (1e-5, 0.1),
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
    options = {"num_layers": 2, "num_classes": 2, **SHAPE, **case}
    options["temperature"] = TEMPERATURES[case.get("temperature", "none")]
    options.pop("target", None)
    return jm.random_transformer(jax.random.key(seed), **options)


def draw_tokens(n, vocab_size=3, seed=0):
    """Random tokens [n]."""
    return np.random.default_rng(seed).integers(0, vocab_size, n)


def widest_query(mask, n):
    """A query row that sees every other one."""
    return 0 if "past" in mask else n - 1
