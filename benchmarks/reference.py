"""The transformer of the model format, written a second time, as plainly as possible.

This is the oracle of the test suite and of `benchmarks.exact_values`. It is written from the
text of docs/model-format.md alone, shares no line with the packages under test, stores n x n
arrays without shame and knows two arithmetics: float64, and mpmath with any number of
digits. It takes what a file holds: the configuration as a dictionary, and the tensors by
name.

Shapes: n tokens, width d, H heads of key width d_k and value width d_v.
"""

import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import safetensors
import scipy.special

Config = Mapping[str, Any]
Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Arithmetic:
    """Elementwise operations on NumPy arrays of one number type."""

    numbers: Callable[[Any], np.ndarray]  # floats or integers, taken exactly
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    nearest_integer: Callable[[Any], np.ndarray]
    # None where the number type has none.
    tanh: Callable[[Any], Any] | None = None
    erf: Callable[[Any], Any] | None = None


# What formulas of positions are formed in, before they are rounded once.
EXACT: Any = mpmath.MPContext()
EXACT.dps = 40

FLOAT64 = Arithmetic(
    numbers=lambda values: np.asarray(values, dtype=np.float64),
    exp=np.exp,
    log=np.log,
    tanh=np.tanh,
    sqrt=np.sqrt,
    erf=scipy.special.erf,
    nearest_integer=np.round,
)


def multiprecision(digits: int = 50) -> Arithmetic:
    """Arithmetic on object arrays of mpmath numbers with `digits` digits."""
    context: Any = mpmath.MPContext()
    context.dps = digits

    def elementwise(function: Callable[[Any], Any]) -> Callable[[Any], np.ndarray]:
        return lambda values: np.asarray(
            np.frompyfunc(function, 1, 1)(values), dtype=object
        )

    def number(value: Any) -> Any:
        return context.mpf(value.item() if isinstance(value, np.generic) else value)

    return Arithmetic(
        numbers=lambda values: elementwise(number)(np.asarray(values)),
        exp=elementwise(context.exp),
        log=elementwise(context.log),
        tanh=elementwise(context.tanh),
        sqrt=elementwise(context.sqrt),
        erf=elementwise(context.erf),
        nearest_integer=elementwise(lambda value: int(context.nint(value))),
    )


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
    """Activation of a feed-forward block, entry by entry."""
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
    """Output of a head of several operations on rows (n, d)."""
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


_MASKS: dict[str, Callable[[int, int], bool]] = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


def visible(mask: str, n: int, window: int | None = None) -> np.ndarray:
    """Whether row i sees column j, as booleans of shape (n, n)."""
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
    """Attention weights of one row over the columns it sees, which are at least one."""
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
    """Queries or keys (n, d_k) after the rotary embedding, pair by pair."""
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
    """Index in a table of distance biases for a key `apart` positions after the row."""
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
    """Biases of one head's scores (n, n), by the distance of row and key."""
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
    """Queries or keys (n, d_k) of one head after their norm, if `entry` has one."""
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


def read_file(path: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the tensors of a model file."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        assert set(metadata) == {"config"}, metadata
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    return json.loads(metadata["config"]), tensors


# ---------------------------------------------------------------------- positions


def position_table(config: Config, tensors: Tensors, n: int) -> np.ndarray:
    """Vector added to the embedding at each position; float64, shape (n, d)."""
    d = tensors["embedding"].shape[1]
    encoding = config.get("position")
    if encoding is None:
        if "position" in tensors:
            return tensors["position"][:n].astype(np.float64)
        return np.zeros((n, d))
    if encoding["kind"] == "sinusoidal":
        return _sinusoidal(n, d, encoding.get("base", 10000), encoding.get("scale", 1))
    assert encoding["kind"] == "coordinates", encoding
    table = np.zeros((n, d))
    for term in encoding["terms"]:
        for j in range(n):
            table[j, term["coordinate"]] += _term(term, j, n)
    return table


def _sinusoidal(n: int, d: int, base: float, scale: float) -> np.ndarray:
    table = np.zeros((n, d))
    for m in range(d // 2):
        frequency = EXACT.mpf(base) ** (EXACT.mpf(-2 * m) / d)
        for j in range(n):
            table[j, m] = scale * float(EXACT.sin(j * frequency))
            table[j, d // 2 + m] = scale * float(EXACT.cos(j * frequency))
    return table


def _term(term: Mapping[str, Any], j: int, n: int) -> float:
    p = j + term.get("offset", 1)
    if "modulus" in term:
        return 1.0 if p % term["modulus"] in term["residues"] else 0.0
    value = term.get("scale", 1) * p ** term.get("position_power", 0)
    value = value * float(n) ** term.get("length_power", 0)
    if term.get("alternating", False):
        value = value * (-1) ** int(p)
    return value


# ------------------------------------------------------------------ the whole model


def forward(
    config: Config,
    tensors: Tensors,
    tokens: Sequence[int] | np.ndarray,
    arithmetic: Arithmetic = FLOAT64,
    ties: str = "error",
) -> np.ndarray:
    """Final activations (n, d), in the numbers of the arithmetic.

    Tensors are taken as the numbers they are, float32 ones too: only the
    position formulas are rounded to the tensors' type, as the format says.
    `ties="ignore"` lets ambiguous rows of the hard weightings pass.
    """
    ar = arithmetic
    dtype = tensors["embedding"].dtype
    n = len(tokens)
    assert n >= 1
    config = {
        "layer_norm": "none",
        "layer_norm_epsilon": 1e-5,
        "activation": "relu",
        "combine": "residual",
        "tie_resolution": 1e-9 if dtype == np.float64 else 1e-4,
        **{key: value for key, value in config.items() if value is not None},
    }
    kind = config["layer_norm"]
    epsilon = ar.numbers(config["layer_norm_epsilon"])
    t = {name: ar.numbers(tensor) for name, tensor in tensors.items()}

    def norm(name: str, z: Any) -> Any:
        if config.get("norm") == "rms_norm":
            return rms_norm(z, t[f"{name}.scale"], epsilon, ar)
        return layer_norm(z, t[f"{name}.scale"], t[f"{name}.bias"], epsilon, ar)

    def feed_forward(prefix: str, z: Any) -> Any:
        def affine(weight: str, bias: str, x: Any) -> Any:
            return x @ t[f"{prefix}.{weight}"].T + t.get(f"{prefix}.{bias}", 0)

        hidden = affine("w1", "b1", z)
        if f"{prefix}.gate" in t:
            gate = affine("gate", "gate_bias", z)
            hidden = activate(config["activation"], gate, ar) * hidden
        else:
            hidden = activate(config["activation"], hidden, ar)
        return affine("w2", "b2", hidden)

    positions = position_table(config, tensors, n).astype(dtype)
    y = t["embedding"][np.asarray(tokens)] + ar.numbers(positions)
    if "token_dropout" in config:
        share = ar.numbers(config["token_dropout"]["share"])
        masked = np.asarray(tokens) == config["token_dropout"]["mask"]
        kept = ar.numbers(int(n - masked.sum())) / n
        y = t["embedding"][np.asarray(tokens)] * ((1 - share) / kept)
        y = np.where(masked[:, None], 0 * y, y) + ar.numbers(positions)
    if "entry.norm.scale" in t:
        y = norm("entry.norm", y)
    if "entry.projection" in t:
        y = y @ t["entry.projection"].T + t.get("entry.projection_bias", 0)
    for number, layer in enumerate(config["layers"]):
        if "same_as" in layer:  # an earlier layer, its weights and all
            number = layer["same_as"]
            layer = config["layers"][number]
        own = {key: value for key, value in layer.items() if value is not None}
        layer = {**config, **own, "dtype": dtype}
        name = f"layers.{number}"
        own_norm = kind == "pre" and layer.get("norm1", True)
        u = norm(f"{name}.norm1", y) if own_norm else y
        tie_resolution = ar.numbers(layer["tie_resolution"])
        heads = [
            head_output(
                layer, f"{name}.attention", head, u, t, tie_resolution, ties, ar
            )
            for head in range(tensors[f"{name}.attention.query"].shape[0])
        ]
        if layer["combine"] == "concat":
            assert kind == "none"
            y = y + feed_forward(f"{name}.ffn", np.concatenate([y, *heads], axis=1))
            continue
        assert layer["combine"] in ("residual", "parallel"), layer
        b = np.concatenate(heads, axis=1)
        c = y + b @ t[f"{name}.attention.output"].T
        if f"{name}.attention.output_bias" in t:
            c = c + t[f"{name}.attention.output_bias"]
        if kind == "post":
            c = norm(f"{name}.norm1", c)
        enters = y if layer["combine"] == "parallel" else c
        z = norm(f"{name}.norm2", enters) if kind == "pre" else enters
        y = c + feed_forward(f"{name}.ffn", z)
        if kind == "post":
            y = norm(f"{name}.norm2", y)
    return norm("final_norm", y) if "final_norm.scale" in t else y


def logits(
    config: Config,
    tensors: Tensors,
    tokens: Sequence[int] | np.ndarray,
    arithmetic: Arithmetic = FLOAT64,
    ties: str = "error",
) -> np.ndarray:
    """Logits of every row, shape (n, classes)."""
    y = forward(config, tensors, tokens, arithmetic, ties)
    if "head" in config:
        return read_head(config["head"], tensors, y, arithmetic)
    weight = arithmetic.numbers(tensors["readout.weight"])
    bias = tensors.get("readout.bias", np.zeros(len(weight)))
    return y @ weight.T + arithmetic.numbers(bias)


def accepts(
    config: Config,
    tensors: Tensors,
    tokens: Sequence[int] | np.ndarray,
    query: int = -1,
) -> bool:
    """Whether the accept rule of the configuration holds at the query position."""
    rule = config["accept"]
    value = logits(config, tensors, tokens)[query, rule["class"]]
    return bool(value >= rule["threshold"])


def influence(
    config: Config,
    tensors: Tensors,
    tokens: Sequence[int] | np.ndarray,
    query: int = -1,
    target: str = "activation",
    include_query: bool = False,
    arithmetic: Arithmetic = FLOAT64,
    ties: str = "error",
) -> np.ndarray:
    """Influence of every substitution, by rerunning; float64 (n, V), NaN without one.

    The norm of the difference is taken in the arithmetic, so that with many digits
    the result is exact to float64.
    """
    run = {"activation": forward, "logits": logits}[target]
    tokens = np.array(tokens)
    n, vocab_size = len(tokens), tensors["embedding"].shape[0]
    query = query % n
    allowed = config.get("substitutable")
    allowed = range(vocab_size) if allowed is None else allowed
    base = run(config, tensors, tokens, arithmetic, ties)[query]
    result = np.full((n, vocab_size), np.nan)
    for i in range(n):
        if tokens[i] not in allowed or (i == query and not include_query):
            continue
        for symbol in allowed:
            if symbol != tokens[i]:
                changed = tokens.copy()
                changed[i] = symbol
                other = run(config, tensors, changed, arithmetic, ties)[query]
                difference = other - base
                square = (difference * difference).sum()
                result[i, symbol] = float(arithmetic.sqrt(square))
    return result
