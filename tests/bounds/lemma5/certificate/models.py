"""The models of the tests of single properties: small, one set of shapes."""

from typing import Any

import jax
import numpy as np

import jax_models as jm
from tests.architecture import with_architecture
from tests.bounds.influence import models

SHAPE: dict[str, Any] = {
    "num_heads": 2,
    "d_model": 4,
    "d_ff": 8,
    "vocab_size": 3,
    "dtype": "float64",
}


def build(case, seed=0) -> Any:
    """The model of a case; factors that it leaves out have their usual values."""
    options = {"num_layers": 2, "num_classes": 2, **SHAPE, **case}
    options["temperature"] = models.TEMPERATURES[case.get("temperature", "none")]
    options.pop("target", None)
    return jm.random_transformer(jax.random.key(seed), **with_architecture(**options))


def draw_tokens(n, vocab_size=3, seed=0):
    """Random tokens [n]."""
    return np.random.default_rng(seed).integers(0, vocab_size, n)
