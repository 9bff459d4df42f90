"""Comparison of an imported model with stored outputs of a trusted implementation."""

import os
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from jax_models.arguments import expect_file
from jax_models.errors import InputError
from jax_models.model.transformer import Transformer
from jax_models.run.evaluate import apply, apply_logits

# Largest difference of a row over the largest row's norm, by float type; some 1e4
# roundoffs. The largest row, since a row that cancels by construction is what rounding
# leaves of it.
ALLOWED = {"float64": 1e-11, "float32": 2e-3}


def compare_outputs(
    model: Transformer,
    # a safetensors file of tokens [n], and rows [n, d], logits [n, c] or both
    path: str | os.PathLike[str],
) -> dict[str, float]:
    """Distance of a model's outputs from stored ones, over the largest row's norm.

    More than rounding in the model's float type is an error.
    """
    path = expect_file("--check", path)
    try:
        stored = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, TypeError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} is not a complete safetensors file: {error}"
        ) from error
    tokens = stored.get("tokens")
    outputs: dict[str, Any] = {"rows": apply, "logits": apply_logits}
    expected = {k: stored[k] for k in outputs if k in stored}
    if tokens is None or not expected:
        raise InputError(
            f"{str(path)!r} holds {sorted(stored)}; expected tokens [n], and rows [n, d], "
            "logits [n, c] or both"
        )
    allowed, found = ALLOWED[str(model.dtype)], {}
    for name, wanted in expected.items():
        made = np.asarray(outputs[name](model, tokens), np.float64)
        if made.shape != wanted.shape:
            raise InputError(
                f"{name} of {str(path)!r} have shape {wanted.shape}; the model's have "
                f"{made.shape}"
            )
        found[name] = apart = largest_difference(made, wanted)
        if not apart <= allowed:
            raise InputError(
                f"the model's {name} differ from those of {str(path)!r} by {apart:.2g} of "
                f"the largest row; expected at most {allowed} in {model.dtype}"
            )
    return found


def largest_difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of a row over the largest row's norm."""
    largest = np.linalg.norm(wanted, axis=-1).max()
    apart = np.linalg.norm(found - wanted, axis=-1).max()
    return float(apart / largest if largest > 0 else apart)
