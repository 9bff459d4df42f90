"""One head of the reference transformer: what it sees, its scores, weights and values.

As `benchmarks.reference`, written from docs/model-format.md alone.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.arithmetic import EXACT, Arithmetic

Config = Mapping[str, Any]

_MASKS: dict[str, Callable[[int, int], bool]] = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


def visible(mask: str, n: int, window: int | None = None) -> np.ndarray:
    """Whether row i sees column j; booleans of shape (n, n)."""
    near = n if window is None else window
    return np.array(
        [[_MASKS[mask](i, j) and abs(i - j) < near for j in range(n)] for i in range(n)]
    )


def temperatures(setting: Mapping[str, Any] | None, n: int, ar: Arithmetic) -> Any:
    """The temperature of every row; shape (n, 1)."""
    ones = ar.numbers(np.ones((n, 1)))
    if setting is None:
        return ones
    if setting["kind"] == "constant":
        return ones * ar.numbers(setting["value"])
    scale = ar.numbers(setting["scale"])
    if setting["kind"] == "inverse_log":
        return ones if n == 1 else ones * scale / ar.log(ar.numbers(n))
    assert setting["kind"] == "power", setting
    base = np.full((n, 1), n)
    if setting.get("of", "length") == "position":
        base = np.arange(1, n + 1)[:, None]
    return scale * ar.exp(ar.numbers(setting["exponent"]) * ar.log(ar.numbers(base)))


def scores(layer: Config, q: Any, k: Any, vector: Any, ar: Arithmetic) -> np.ndarray:
    """Scores (n, n) of one head before the temperature; q and k are (n, d_k)."""
    if layer["score"] == "dot_product":
        return q @ k.T
    if layer["score"] == "scaled_dot_product":
        return (q @ k.T) / ar.sqrt(ar.numbers(q.shape[1]))
    assert layer["score"] == "additive", layer
    assert ar.tanh is not None
    return ar.tanh(q[:, None, :] + k[None, :, :]) @ vector


def row_weights(
    row: np.ndarray, weighting: str, tie_resolution: Any, ties: str, ar: Arithmetic
) -> np.ndarray:
    """Attention weights of one row over the columns it sees, at least one."""
    if weighting == "softmax":
        exponentials = ar.exp(row - row.max())
        return exponentials / exponentials.sum()
    cells = ar.nearest_integer(row / tie_resolution)
    best = cells.max()
    if ties == "error" and (cells == best - 1).any():
        raise ValueError(f"ambiguous row: best cell {best}, scores {row}")
    winners = np.flatnonzero(cells == best)
    chosen = {
        "leftmost_hard": winners[:1],
        "rightmost_hard": winners[-1:],
        "average_hard": winners,
    }[weighting]
    weights = ar.numbers(np.zeros(len(row)))
    weights[chosen] = ar.numbers(1) / len(chosen)
    return weights


def turned(rotary: Config, rows: np.ndarray, dtype: Any, ar: Arithmetic) -> np.ndarray:
    """Queries or keys (n, d_k) turned by their positions, pair by pair."""
    rows, dims = rows.copy(), rotary["dims"]
    for pair in range(dims // 2):
        frequency = EXACT.mpf(rotary["theta"]) ** (EXACT.mpf(-2 * pair) / dims)
        scaling = rotary.get("scaling")
        if scaling is not None and scaling["kind"] == "listed":
            frequency = EXACT.mpf(scaling["frequencies"][pair])
        elif scaling is not None and scaling["kind"] == "linear":
            frequency /= scaling["factor"]
        elif scaling is not None:
            turns = scaling["original_length"] * frequency / (2 * EXACT.pi)
            low = scaling["low_frequency_factor"]
            high = scaling["high_frequency_factor"]
            share = min(max((turns - low) / (high - low), 0), 1)
            frequency *= share + (1 - share) / scaling["factor"]
        here = (pair, pair + dims // 2)
        if rotary["pairing"] == "interleaved":
            here = (2 * pair, 2 * pair + 1)
        for position in range(len(rows)):
            angle = position * frequency
            turn = [float(EXACT.cos(angle)), float(EXACT.sin(angle))]
            cos, sin = ar.numbers(np.array(turn, dtype))
            a, b = rows[position, here[0]], rows[position, here[1]]
            rows[position, here[0]] = a * cos - b * sin
            rows[position, here[1]] = b * cos + a * sin
    return rows


def bucket(entry: Config, count: int, apart: int) -> int:
    """Where a table has its number for a key that stands at i + apart."""
    both = entry.get("bidirectional", True)
    own = count // 2 if both else count
    start = own if both and apart > 0 else 0
    near, largest = own // 2, entry.get("max_distance", 128)
    distance = abs(apart) if both else max(-apart, 0)
    if distance < near:
        return start + distance
    whole = 0
    ratio = Fraction(distance, near) ** (own - near)
    while ratio >= Fraction(largest, near) ** (whole + 1):
        whole += 1
    return start + min(near + whole, own - 1)


def distance_bias(entry: Config, tensor: Any, n: int, ar: Arithmetic) -> np.ndarray:
    """What is added to one head's scores (n, n)."""
    apart = np.arange(n)[None, :] - np.arange(n)[:, None]
    if entry["kind"] == "alibi":
        return -tensor * ar.numbers(np.abs(apart))
    assert entry["kind"] == "buckets", entry
    return tensor[
        [[bucket(entry, len(tensor), x) for x in row] for row in apart.tolist()]
    ]


def normed(
    entry: Config | None,
    name: str,
    rows: np.ndarray,
    tensors: Mapping[str, Any],
    ar: Arithmetic,
) -> np.ndarray:
    """Queries or keys (n, d_k) of one head, each divided by its size."""
    if entry is None:
        return rows
    offset = 0
    if entry["norm"] == "layer_norm":
        rows = rows - rows.sum(axis=1, keepdims=True) / rows.shape[1]
        offset = tensors[f"{name}.bias"]
    square = (rows * rows).sum(axis=1, keepdims=True) / rows.shape[1]
    epsilon = ar.numbers(entry["layer_norm_epsilon"])
    return rows / ar.sqrt(square + epsilon) * tensors[f"{name}.scale"] + offset


def head_output(
    layer: Config,
    prefix: str,
    head: int,
    u: np.ndarray,
    tensors: Mapping[str, Any],
    tie_resolution: Any,
    ties: str,
    ar: Arithmetic,
) -> np.ndarray:
    """Attended values b of one head; u is (n, d), result (n, d_v)."""
    heads = len(tensors[f"{prefix}.query"])
    projected = []
    for name in ("query", "key", "value"):
        weight = tensors[f"{prefix}.{name}"]
        own = head * len(weight) // heads
        bias = tensors.get(f"{prefix}.{name}_bias")
        projected.append(u @ weight[own].T + (0 if bias is None else bias[own]))
    q, k, v = projected
    q, k = (
        normed(layer.get(name), f"{prefix}.{name}", rows, tensors, ar)
        for name, rows in (("query_norm", q), ("key_norm", k))
    )
    if layer.get("rotary") is not None:
        q, k = (turned(layer["rotary"], rows, layer["dtype"], ar) for rows in (q, k))
    vector = None
    if layer["score"] == "additive":
        vector = tensors[f"{prefix}.score_vector"][head]
    n = len(u)
    s = scores(layer, q, k, vector, ar)
    if layer.get("distance_bias") is not None:
        tensor = tensors[f"{prefix}.distance_bias"][head]
        s = s + distance_bias(layer["distance_bias"], tensor, n, ar)
    s = s / temperatures(layer.get("temperature"), n, ar)
    seen = visible(layer["mask"], n, layer.get("window"))
    alpha = ar.numbers(np.zeros((n, n)))
    for i in range(n):
        if seen[i].any():
            alpha[i, seen[i]] = row_weights(
                s[i, seen[i]], layer["weighting"], tie_resolution, ties, ar
            )
    return alpha @ v
