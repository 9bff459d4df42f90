"""The models of the certificate tests: every architecture, one set of shapes."""

from typing import Any

import jax
import numpy as np

import jax_models as jm
from tests.bounds.influence import models

SHAPE: dict[str, Any] = {
    "num_heads": 2,
    "d_model": 4,
    "d_ff": 8,
    "vocab_size": 3,
    "dtype": "float64",
}
# Softmax attention alone has certificates, and every row of theirs has positions.
LEFT_OUT = {"weighting", "position"}
FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: levels for name, levels in models.FACTORS.items() if name not in LEFT_OUT},
    "num_layers": (1, 2, 3, 4),
    "scale": (0.3, 1.0, 3.0),
    "layer_norm_epsilon": (1e-5, 0.1),
}


def build(case, seed=0) -> Any:
    """The model of a case; factors that it leaves out have their usual values."""
    options = {"num_layers": 2, "num_classes": 2, **SHAPE, **case}
    options["temperature"] = models.TEMPERATURES[case.get("temperature", "none")]
    options.pop("target", None)
    return jm.random_transformer(jax.random.key(seed), **options)


def draw_tokens(n, vocab_size=3, seed=0):
    """Random tokens [n]."""
    return np.random.default_rng(seed).integers(0, vocab_size, n)


def widest_query(mask, n):
    """A query row that sees every other one."""
    return 0 if "past" in mask else n - 1
