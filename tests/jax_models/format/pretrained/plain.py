"""The oracle of imports: a plain forward pass over the words of the format, in float64.

In NumPy, without the engine: docs/model-format.md, sections 1 and 5, of softmax layers with
residual sums, with all keys of a row at once. Shapes: n rows, h heads, g groups of them,
e = d_k, v = d_v.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import jax_models as jm
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from jax_models.format.pretrained.reference import largest_difference

TOKENS = 8
# Of two ways to compute one model a misread tensor exceeds the other, and not what rounding
# leaves of rows that cancel by construction.
ALLOWED = {"float64": 1e-7, "float32": 2e-3}

Tensors = Mapping[str, np.ndarray]
Config = Mapping[str, Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _tanh_gelu(z: np.ndarray) -> np.ndarray:
    return z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0),
    "relu_squared": lambda z: np.maximum(z, 0) ** 2,
    "gelu": lambda z: z / 2 * (1 + _erf(z / math.sqrt(2))),
    "gelu_tanh": _tanh_gelu,
    "silu": lambda z: z / (1 + np.exp(-z)),
    "tanh": np.tanh,
}


def _norm(
    kind: str, epsilon: float, t: Tensors, name: str, z: np.ndarray
) -> np.ndarray:
    if kind == "layer_norm":
        z = z - z.mean(axis=-1, keepdims=True)
    unit = z / np.sqrt((z * z).mean(axis=-1, keepdims=True) + epsilon)
    return unit * t[f"{name}.scale"] + t.get(f"{name}.bias", 0)


def _frequencies(rotary: Config) -> np.ndarray:
    dims, scaling = rotary["dims"], rotary.get("scaling")
    found = rotary.get("theta", 10000) ** (-np.arange(0, dims, 2) / dims)
    if scaling is None:
        return found
    if scaling["kind"] == "listed":
        return np.array(scaling["frequencies"])
    slow = found / scaling["factor"]
    if scaling["kind"] == "linear":
        return slow
    low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]
    turns = scaling["original_length"] * found / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return share * found + (1 - share) * slow


def _turn(rotary: Config | None, rows: np.ndarray) -> np.ndarray:
    """Queries or keys [h, n, e] turned by their positions."""
    if rotary is None:
        return rows
    dims, half = rotary["dims"], rotary["dims"] // 2
    first, second = slice(0, half), slice(half, dims)
    if rotary.get("pairing", "half") == "interleaved":
        first, second = slice(0, dims, 2), slice(1, dims, 2)
    angle = np.arange(rows.shape[1])[:, None] * _frequencies(rotary)
    a, b, turned = rows[..., first], rows[..., second], rows.copy()
    turned[..., first] = a * np.cos(angle) - b * np.sin(angle)
    turned[..., second] = b * np.cos(angle) + a * np.sin(angle)
    return turned


def _attend(config: Config, layer: Config, t: Tensors, at: str, u: np.ndarray) -> Any:
    """The heads of all rows side by side [n, h v]."""
    made = {}
    for name in ("query", "key", "value"):
        made[name] = np.einsum("hed,nd->hne", t[f"{at}.{name}"], u)
        if f"{at}.{name}_bias" in t:
            made[name] += t[f"{at}.{name}_bias"][:, None]
    rotary = layer.get("rotary", config.get("rotary"))
    query, key = (_turn(rotary, made[name]) for name in ("query", "key"))
    share = query.shape[0] // key.shape[0]
    key, value = (np.repeat(x, share, axis=0) for x in (key, made["value"]))
    scores = np.einsum("hne,hke->hnk", query, key)
    if layer.get("score", "scaled_dot_product") == "scaled_dot_product":
        scores /= math.sqrt(query.shape[-1])
    scores /= (layer.get("temperature") or {"value": 1})["value"]
    seen = np.ones(scores.shape[1:], bool)
    if layer.get("mask", "none") == "future":
        seen = np.tril(seen)
    window = layer.get("window", config.get("window"))
    if window is not None:
        distance = np.abs(np.subtract.outer(*2 * [np.arange(len(u))]))
        seen &= distance < window
    weights = np.exp(
        scores - scores.max(axis=-1, keepdims=True, where=seen, initial=-np.inf)
    )
    weights = np.where(seen, weights, 0)
    weights /= weights.sum(axis=-1, keepdims=True)
    heads = np.einsum("hnk,hkv->nhv", weights, value)
    return heads.reshape(len(u), -1)


def _block(activation: str, t: Tensors, at: str, z: np.ndarray) -> np.ndarray:
    hidden = z @ t[f"{at}.w1"].T + t.get(f"{at}.b1", 0)
    bend = ACTIVATIONS[activation]
    if f"{at}.gate" in t:
        hidden *= bend(z @ t[f"{at}.gate"].T + t.get(f"{at}.gate_bias", 0))
    else:
        hidden = bend(hidden)
    return hidden @ t[f"{at}.w2"].T + t.get(f"{at}.b2", 0)


def assert_is_plain(model):
    """Rows and logits of an imported model are those of the plain pass, on a few tokens."""
    free = np.asarray(model.substitutable or range(model.vocab_size))
    table = getattr(model.position, "table", range(TOKENS))
    length = min(TOKENS, len(free), len(table))
    tokens = free[np.linspace(0, len(free) - 1, length).astype(int)]
    tensors = name_tensors(model)
    config = encode_config(model, tensors)
    tensors = {k: np.asarray(x, np.float64) for k, x in tensors.items()}
    if model.position is not None:
        encoded = model.position.encode(length, model.embedding.shape[1])
        tensors["position"] = np.asarray(encoded, np.float64)
    rows = plain_forward(config, tensors, tokens)
    pairs = {"rows": (jm.apply(model, tokens), rows)}
    if model.readout is not None:
        logits = plain_logits(config, tensors, rows)
        pairs["logits"] = jm.apply_logits(model, tokens), logits
    for name, (found, wanted) in pairs.items():
        apart = largest_difference(np.asarray(found, np.float64), wanted)
        assert apart <= ALLOWED[str(model.dtype)], f"{name} differ by {apart:.2g}"


def plain_forward(config: Config, t: Tensors, tokens: np.ndarray) -> np.ndarray:
    """Returns the final activations [n, d].

    Args:
        config: of the format, of softmax layers with residual sums.
        t: its tensors in float64.
        tokens: integers in [0, V) [n].
    """
    kind, epsilon = config.get("norm", "layer_norm"), config["layer_norm_epsilon"]

    def norm(name: str, z: np.ndarray) -> np.ndarray:
        return _norm(kind, epsilon, t, name, z)

    y = t["embedding"][tokens]
    if "token_dropout" in config:
        dropped, share = (
            config["token_dropout"]["mask"],
            config["token_dropout"]["share"],
        )
        masked = tokens == dropped
        y = np.where(masked[:, None], 0, y) * (1 - share) / (1 - masked.mean())
    if "position" in t:
        y = y + t["position"][: len(tokens)]
    if "entry.norm.scale" in t:
        y = norm("entry.norm", y)
    if "entry.projection" in t:
        y = y @ t["entry.projection"].T + t.get("entry.projection_bias", 0)
    for k, layer in enumerate(config["layers"]):
        k = layer.get("same_as", k)
        layer, at = config["layers"][k], f"layers.{k}"
        pre, post = (config["layer_norm"] == x for x in ("pre", "post"))
        u = norm(f"{at}.norm1", y) if pre else y
        heads = _attend(config, layer, t, f"{at}.attention", u)
        y = y + heads @ t[f"{at}.attention.output"].T
        y = y + t.get(f"{at}.attention.output_bias", 0)
        y = norm(f"{at}.norm1", y) if post else y
        z = norm(f"{at}.norm2", y) if pre else y
        y = y + _block(config["activation"], t, f"{at}.ffn", z)
        y = norm(f"{at}.norm2", y) if post else y
    return norm("final_norm", y) if "final_norm.scale" in t else y


def plain_logits(config: Config, t: Tensors, rows: np.ndarray) -> np.ndarray:
    """Returns what the head makes of final activations [n, c].

    Args:
        config: of the format.
        t: its tensors in float64.
        rows: final activations [n, d].
    """
    if "readout.weight" in t:
        return rows @ t["readout.weight"].T + t.get("readout.bias", 0)
    for at, one in enumerate(config["head"]):
        name = f"head.{at}"
        if isinstance(one, dict):
            rows = _norm(one["norm"], one["epsilon"], t, name, rows)
        elif one in ("linear", "embedding"):
            weight = t["embedding"] if one == "embedding" else t[f"{name}.weight"]
            rows = rows @ weight.T + t.get(f"{name}.bias", 0)
        else:
            rows = ACTIVATIONS[one](rows)
    return rows
