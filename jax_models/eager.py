"""The forward pass in NumPy, without compilation and batched over strings.

The semantics are those of `forward` for softmax layers; there is nothing to compile, so
that many small models, or one model at many lengths, run at once. Rows go in blocks:
memory is one block of scores per head beside the activations. Shapes: b strings, n
positions, h heads, d model width.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jax_models.attention import Attention
from jax_models.errors import InputError
from jax_models.layer import Layer
from jax_models.transformer import Transformer, encode_positions
from jax_models.weighting import Softmax

MAX_SCORES = 2**22
"""How many scores are held at once."""


def apply_eagerly(model: Transformer, strings: ArrayLike) -> np.ndarray:
    """Returns the final activations of strings of one length, computed by NumPy.

    Args:
        model: a transformer of softmax layers with relu, residual sums, dot-product
            scores and no layer norm.
        strings: integers in [0, V) [b, n] or [n].

    Returns:
        Activations [b, n, d] or [n, d], in the model's float type.

    Raises:
        InputError: for tokens that are none, or a model of another kind.
    """
    tokens = np.asarray(strings)
    if tokens.ndim not in (1, 2) or not tokens.size or tokens.dtype.kind not in "iu":
        raise InputError(
            f"strings have shape {tokens.shape} and type {tokens.dtype}; expected "
            "integers [b, n] or [n] with n >= 1"
        )
    if tokens.min() < 0 or tokens.max() >= model.vocab_size:
        raise InputError(
            f"strings hold tokens from {tokens.min()} to {tokens.max()}; the model has "
            f"the tokens 0 to {model.vocab_size - 1}"
        )
    for depth, layer in enumerate(model.layers):
        _require_plain(layer, depth)
    if model.final_norm is not None:
        raise InputError("the eager pass knows no layer norm; the model has final_norm")
    batch = np.atleast_2d(tokens)
    y = np.asarray(model.embedding)[batch]
    y = y + np.asarray(encode_positions(model, batch.shape[1]))
    for layer in model.layers:
        y = _apply_layer(layer, y)
    return y.reshape(*tokens.shape, -1)


def _require_plain(layer: Layer, depth: int) -> None:
    attention = layer.attention
    found = {
        "weighting": (attention.weighting.name, Softmax.name),
        "score": (attention.score, "dot_product"),
        "combine": (layer.combine, "residual"),
        "layer_norm": (layer.layer_norm, "none"),
        "activation": (layer.feed_forward.activation, "relu"),
    }
    for name, (value, expected) in found.items():
        if value != expected:
            raise InputError(
                f"the eager pass knows {name} {expected!r} only; layer {depth} has "
                f"{value!r}; use apply"
            )


def _apply_layer(layer: Layer, y: np.ndarray) -> np.ndarray:
    attention, forward = layer.attention, layer.feed_forward
    assert attention.output is not None
    c = y + _linear(_heads(attention, y), attention.output, attention.output_bias)
    hidden = np.maximum(_linear(c, forward.w1, forward.b1), 0)
    return c + _linear(hidden, forward.w2, forward.b2)


def _linear(rows: np.ndarray, weight: Any, bias: Any) -> np.ndarray:
    product = rows @ np.asarray(weight).T
    return product if bias is None else product + np.asarray(bias)


def _project(weight: Any, bias: Any, rows: np.ndarray) -> np.ndarray:
    """Rows [b, n, d] by every head [b, h, n, e]."""
    product = np.einsum("hed,bnd->bhne", np.asarray(weight), rows, optimize=True)
    return product if bias is None else product + np.asarray(bias)[:, None, :]


def _heads(attention: Attention, y: np.ndarray) -> np.ndarray:
    """What the heads attend to, side by side [b, n, h v]."""
    strings, length, _ = y.shape
    query = _project(attention.query, attention.query_bias, y)
    key = _project(attention.key, attention.key_bias, y)
    value = _project(attention.value, attention.value_bias, y)
    if attention.temperature is not None:
        tau = attention.temperature(length, jnp.arange(length), query.dtype)
        query = query / np.asarray(tau).reshape(-1, 1)
    block = max(1, MAX_SCORES // (strings * attention.num_heads * length))
    parts = [
        _attend(attention.mask, query[:, :, start : start + block], key, value, start)
        for start in range(0, length, block)
    ]
    heads = np.concatenate(parts, axis=2)
    return heads.transpose(0, 2, 1, 3).reshape(strings, length, -1)


def _attend(
    mask: str, query: np.ndarray, key: np.ndarray, value: np.ndarray, start: int
) -> np.ndarray:
    """What a block of rows attends to [b, h, r, v]; 0 where a row sees nothing."""
    i = start + np.arange(query.shape[2])[:, None]
    j = np.arange(key.shape[2])[None, :]
    seen = {
        "none": (j >= 0) & (i >= 0),
        "future": j <= i,
        "past": j >= i,
        "strict_future": j < i,
        "strict_past": j > i,
    }[mask]
    scores = np.where(seen, query @ key.swapaxes(-1, -2), -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return (weights @ value) / np.where(total > 0, total, 1)
