"""What the plain transformer of the tests does to rows: norms, activations, heads.

A part of `benchmarks.reference`, written from docs/model-format.md alone; `ar` is its
`Arithmetic`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def layer_norm(z: Any, scale: Any, bias: Any, epsilon: Any, ar: Any) -> Any:
    """(z - mean) / sqrt(population variance + epsilon) * scale + bias, by row."""
    d = z.shape[-1]
    mean = z.sum(axis=-1, keepdims=True) / d
    variance = ((z - mean) ** 2).sum(axis=-1, keepdims=True) / d
    return (z - mean) / ar.sqrt(variance + epsilon) * scale + bias


def rms_norm(z: Any, scale: Any, epsilon: Any, ar: Any) -> Any:
    """z / sqrt(mean of squares + epsilon) * scale, by row."""
    square = (z * z).sum(axis=-1, keepdims=True) / z.shape[-1]
    return z / ar.sqrt(square + epsilon) * scale


def activate(name: str, z: Any, ar: Any) -> Any:
    """The activation of a feed-forward block, entry by entry."""
    half = ar.numbers(1) / 2
    positive = np.where(z > 0, z, 0 * z)
    if name in ("relu", "relu_squared"):
        return positive if name == "relu" else positive * positive
    if name == "tanh":
        return ar.tanh(z)
    if name == "silu":
        return z / (1 + ar.exp(-z))
    if name == "gelu_tanh":
        cubic = z + ar.numbers(0.044715) * z * z * z
        return z * half * (1 + ar.tanh(ar.sqrt(ar.numbers(2 / math.pi)) * cubic))
    assert name == "gelu", name
    return z * half * (1 + ar.erf(z / ar.sqrt(ar.numbers(2))))


def read_head(
    head: Sequence[Any], tensors: Mapping[str, np.ndarray], y: Any, ar: Any
) -> Any:
    """What a head of several operations makes of rows (n, d)."""
    for at, operation in enumerate(head):
        t = {
            name: ar.numbers(tensors[f"head.{at}.{name}"])
            for name in ("weight", "bias", "scale")
            if f"head.{at}.{name}" in tensors
        }
        if operation == "linear":
            y = y @ t["weight"].T + t.get("bias", 0)
        elif operation == "embedding":
            y = y @ ar.numbers(tensors["embedding"]).T + t.get("bias", 0)
        elif isinstance(operation, str):
            y = activate(operation, y, ar)
        else:
            assert operation["norm"] == "layer_norm", operation
            y = layer_norm(
                y, t["scale"], t["bias"], ar.numbers(operation["epsilon"]), ar
            )
    return y
