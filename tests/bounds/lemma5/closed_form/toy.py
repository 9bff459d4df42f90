"""Tiny transformers in plain NumPy, run as defined, and the constants read off them.

An oracle for the closed forms: no code of the packages computes an activation here. All
substitutions are run as one batch, so arrays are (batch, n, d) and (batch, n, n).
"""

import dataclasses
import math
from typing import Any

import numpy as np

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    LayerConstants,
    Score,
    concat_norm,
    feed_forward_lipschitz,
    layer_norm_change_cap,
    layer_norm_lipschitz,
    layer_norm_output_norm,
    residual_norm,
)

VOCABULARY = 3


@dataclasses.dataclass(frozen=True)
class Family:
    """What is drawn: the form of a layer, its score, its size and scales."""

    form: str = "residual"
    score: str = "dot"
    num_layers: int = 2
    num_heads: int = 2
    masks: tuple[str, ...] = ("none",)
    layer_norm: str = "none"
    epsilon: float = 0.1
    scale: float = 0.5
    score_scale: float = 0.5
    temperature: float = 1.0
    biases: bool = True
    width: int = 4
    hidden: int = 6

    def mask(self, layer: int) -> str:
        return self.masks[layer % len(self.masks)]


@dataclasses.dataclass(frozen=True)
class Toy:
    """A drawn model; `layers` hold one dictionary of arrays each."""

    family: Family
    embedding: np.ndarray
    layers: tuple[dict[str, Any], ...]


def draw(family: Family, seed: int) -> Toy:
    """Gaussian weights: the family's scale over the square root of the fan-in."""
    rng = np.random.default_rng(seed)
    d, m, h = family.width, family.hidden, family.num_heads

    def matrix(*shape: int, scale: float) -> np.ndarray:
        return scale * rng.normal(size=shape) / math.sqrt(shape[-1])

    def bias(*shape: int) -> np.ndarray:
        return 0.3 * family.scale * rng.normal(size=shape) * family.biases

    layers = []
    for _ in range(family.num_layers):
        incoming = d * (1 + h) if family.form == "concat" else d
        layer: dict[str, Any] = {
            "query": matrix(h, d, d, scale=family.score_scale),
            "key": matrix(h, d, d, scale=family.score_scale),
            "query_bias": bias(h, d),
            "key_bias": bias(h, d),
            "score_vector": family.score_scale * rng.normal(size=(h, d)),
            "value": matrix(h, d, d, scale=family.scale),
            "value_bias": bias(h, d),
            "w1": matrix(m, incoming, scale=family.scale),
            "b1": bias(m),
            "w2": matrix(d, m, scale=family.scale),
            "b2": bias(d),
            "gamma": 1 + 0.3 * rng.normal(size=(2, d)),
            "beta": bias(2, d),
        }
        layers.append(layer)
    return Toy(family, rng.normal(size=(VOCABULARY, d)) / math.sqrt(d), tuple(layers))


def positions(length: int, width: int) -> np.ndarray:
    """Sinusoidal, of norm √(width/2)."""
    angle = np.arange(length)[:, None] / 100 ** (np.arange(width // 2) / (width // 2))
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def visible(mask: str, length: int) -> np.ndarray:
    """(n, n): whether the row sees the column."""
    j, w = np.ogrid[:length, :length]
    return {
        "none": (j >= 0) & (w >= 0),
        "future": w <= j,
        "past": w >= j,
        "strict_future": w < j,
        "strict_past": w > j,
    }[mask]


def run(toy: Toy, tokens: np.ndarray) -> np.ndarray:
    """Activations (batch, n, d) of the last layer for tokens (batch, n)."""
    family = toy.family
    n = tokens.shape[1]
    y = toy.embedding[tokens] + positions(n, family.width)
    for k, layer in enumerate(toy.layers):
        u = _norm(y, layer, 0, family) if family.layer_norm == "pre" else y
        allowed = visible(family.mask(k), n)
        averages = [
            _attend(u, layer, h, family, allowed) for h in range(family.num_heads)
        ]
        if family.form == "concat":
            z = np.concatenate([y, *averages], axis=-1)
            y = y + _relu(z @ layer["w1"].T + layer["b1"]) @ layer["w2"].T + layer["b2"]
            continue
        c = y + sum(averages)
        if family.layer_norm == "post":
            c = _norm(c, layer, 0, family)
        z = _norm(c, layer, 1, family) if family.layer_norm == "pre" else c
        y = c + _relu(z @ layer["w1"].T + layer["b1"]) @ layer["w2"].T + layer["b2"]
        if family.layer_norm == "post":
            y = _norm(y, layer, 1, family)
    return y


def influence(toy: Toy, tokens: np.ndarray) -> np.ndarray:
    """(n, n): the largest change of row j (second axis) over the symbols at row i."""
    n = len(tokens)
    batch = np.tile(tokens, (n, VOCABULARY, 1))
    batch[np.arange(n), :, np.arange(n)] = np.arange(VOCABULARY)
    out = run(toy, batch.reshape(-1, n)).reshape(n, VOCABULARY, n, -1)
    base = run(toy, tokens[None])[0]
    return np.linalg.norm(out - base, axis=-1).max(axis=1)


def distance(toy: Toy) -> float:
    """D: the largest distance of two embeddings."""
    e = toy.embedding
    return _up(np.linalg.norm(e[:, None] - e[None], axis=-1).max())


def layer_constants(toy: Toy, length: int) -> tuple[list[LayerConstants], list[float]]:
    """Constants of the layers for one length, and F_0 … F_L."""
    family = toy.family
    first = toy.embedding[:, None] + positions(length, family.width)
    norms = [_up(np.linalg.norm(first, axis=-1).max())]
    layers = []
    for layer in toy.layers:
        constants, norm = _of_layer(family, layer, norms[-1])
        layers.append(constants)
        norms.append(norm)
    return layers, norms


def _of_layer(
    family: Family, layer: dict[str, Any], norm: float
) -> tuple[LayerConstants, float]:
    d, heads = family.width, range(family.num_heads)
    gains, shifts = np.abs(layer["gamma"]).max(axis=1), layer["beta"]
    lip = [layer_norm_lipschitz(g, family.epsilon).value for g in gains]
    out = [
        layer_norm_output_norm(g, _up(np.linalg.norm(b)), d).value
        for g, b in zip(gains, shifts, strict=True)
    ]
    omegas = [_spectral(layer["value"][h]) for h in heads]
    scores = [_score(family, layer, h) for h in heads]
    w1, w2 = layer["w1"], layer["w2"]
    at_zero = _relu(layer["b1"]) @ w2.T + layer["b2"]
    if family.form == "concat":
        parts = [w1[:, d * p : d * (p + 1)] for p in range(1 + family.num_heads)]
        skip = _block(parts[0], w2)
        ell = [_up(_spectral(w2) * _spectral(part)) for part in parts[1:]]
        shifted = layer["b1"] + w1[:, d:] @ layer["value_bias"].reshape(-1)
        offset = _up(np.linalg.norm(_relu(shifted) @ w2.T + layer["b2"]))
        new = concat_norm(
            norm, skip_gain=skip, head_lipschitz=ell, omegas=omegas, offset=offset
        ).value
        constants = LayerConstants.concat(
            norm=norm,
            scores=scores,
            omegas=omegas,
            skip_gain=skip,
            head_lipschitz=ell,
            output_cap=_up(2 * new),
        )
        return constants, new
    attention_offset = _up(np.linalg.norm(layer["value_bias"].sum(axis=0)))
    pre, post = family.layer_norm == "pre", family.layer_norm == "post"
    attended = out[0] if pre else norm
    if pre:
        block = _up(1 + _spectral(w2) * _spectral(w1) * lip[1])
        reach = _spectral(w1) * out[1] + np.linalg.norm(layer["b1"])
        new = residual_norm(
            norm,
            attended_norm=attended,
            omegas=omegas,
            attention_offset=attention_offset,
            block_lipschitz=1.0,
            block_offset=_up(_spectral(w2) * reach + np.linalg.norm(layer["b2"])),
        ).value
        cap = _up(2 * new)
    elif post:
        block, new = _block(w1, w2), out[1]
        cap = layer_norm_change_cap(gains[1], d).value
    else:
        block = _block(w1, w2)
        new = residual_norm(
            norm,
            attended_norm=norm,
            omegas=omegas,
            attention_offset=attention_offset,
            block_lipschitz=block,
            block_offset=_up(np.linalg.norm(at_zero)),
        ).value
        cap = _up(2 * new)
    constants = LayerConstants.residual(
        norm=attended,
        scores=scores,
        omegas=omegas,
        block_lipschitz=block,
        input_gain=lip[0] if pre else 1.0,
        middle_gain=lip[0] if post else 1.0,
        output_gain=lip[1] if post else 1.0,
        output_cap=cap,
    )
    return constants, new


def _score(family: Family, layer: dict[str, Any], head: int) -> Score:
    query, key = layer["query"][head], layer["key"][head]
    if family.score == "dot":
        c = np.linalg.norm(key.T @ layer["query_bias"][head])
        score: Score = DotProduct(_spectral(query.T @ key), _up(c))
    else:
        u = layer["score_vector"][head]
        size = np.linalg.norm(u)
        score = Additive(
            _up(size * _spectral(query)),
            _up(size * _spectral(key)),
            _up(np.abs(u).sum()),
        )
    return score.at_temperature(family.temperature)


def _attend(
    u: np.ndarray, layer: dict[str, Any], head: int, family: Family, allowed: np.ndarray
) -> np.ndarray:
    q = u @ layer["query"][head].T + layer["query_bias"][head]
    k = u @ layer["key"][head].T + layer["key_bias"][head]
    v = u @ layer["value"][head].T + layer["value_bias"][head]
    if family.score == "dot":
        s = q @ np.swapaxes(k, -1, -2)
    else:
        s = np.tanh(q[:, :, None] + k[:, None]) @ layer["score_vector"][head]
    s = np.where(allowed, s / family.temperature, -np.inf)
    sees = allowed.any(axis=-1, keepdims=True)
    top = np.where(sees, s.max(axis=-1, keepdims=True), 0.0)
    weights = np.exp(s - top)
    weights = weights / np.where(sees, weights.sum(axis=-1, keepdims=True), 1.0)
    return weights @ v


def _norm(
    z: np.ndarray, layer: dict[str, Any], which: int, family: Family
) -> np.ndarray:
    centred = z - z.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + family.epsilon)
    return centred / spread * layer["gamma"][which] + layer["beta"][which]


def _block(w1: np.ndarray, w2: np.ndarray) -> float:
    rows, columns = np.linalg.norm(w1, axis=1), np.linalg.norm(w2, axis=0)
    t = np.sqrt(columns / rows)
    product = min(
        _spectral(w2) * _spectral(w1), _spectral(w2 / t) * _spectral(t[:, None] * w1)
    )
    half = _spectral(np.eye(len(w2)) + w2 @ w1 / 2)
    return feed_forward_lipschitz(_up(product), half).value


def _relu(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0)


def _spectral(matrix: np.ndarray) -> float:
    return _up(np.linalg.norm(matrix, 2))


def _up(value: float | np.floating) -> float:
    # A margin far above the rounding of a norm of a few dozen numbers.
    return float(value) * (1 + 1e-13)
