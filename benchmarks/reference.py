"""The transformer of the model format, written a second time, as plainly as possible.

This is the oracle of the test suite and of `benchmarks.accuracy`. It is written from the
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
from typing import Any

import mpmath
import numpy as np
import safetensors
import scipy.special

from benchmarks.reference_rows import activate, layer_norm, read_head

Config = Mapping[str, Any]
Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Arithmetic:
    """The elementwise operations of one number type, on NumPy arrays of it."""

    numbers: Callable[[Any], np.ndarray]  # floats or integers, taken exactly
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    erf: Callable[[Any], Any]
    nearest_integer: Callable[[Any], np.ndarray]


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
    """Arithmetic on object arrays of mpmath numbers with that many digits."""
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


def read_file(path: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the tensors of a model file."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        assert set(metadata) == {"config"}, metadata
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    return json.loads(metadata["config"]), tensors


# ------------------------------------------------------------ positions and masks


def position_table(config: Config, tensors: Tensors, n: int) -> np.ndarray:
    """What position j adds to the embedding; float64, shape (n, d)."""
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
    for j in range(n):
        for m in range(d // 2):
            angle = j / base ** (2 * m / d)
            table[j, m] = scale * math.sin(angle)
            table[j, d // 2 + m] = scale * math.cos(angle)
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


_MASKS: dict[str, Callable[[int, int], bool]] = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


def visible(mask: str, n: int) -> np.ndarray:
    """Whether row i sees column j; booleans of shape (n, n)."""
    return np.array([[_MASKS[mask](i, j) for j in range(n)] for i in range(n)])


# ------------------------------------------------------------------- one attention


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
    vector = None
    if layer["score"] == "additive":
        vector = tensors[f"{prefix}.score_vector"][head]
    n = len(u)
    s = scores(layer, q, k, vector, ar) / temperatures(layer.get("temperature"), n, ar)
    seen = visible(layer["mask"], n)
    alpha = ar.numbers(np.zeros((n, n)))
    for i in range(n):
        if seen[i].any():
            alpha[i, seen[i]] = row_weights(
                s[i, seen[i]], layer["weighting"], tie_resolution, ties, ar
            )
    return alpha @ v


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
    for number, layer in enumerate(config["layers"]):
        own = {key: value for key, value in layer.items() if value is not None}
        layer = {**config, **own}
        name = f"layers.{number}"
        u = norm(f"{name}.norm1", y) if kind == "pre" else y
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
        assert layer["combine"] == "residual", layer
        b = np.concatenate(heads, axis=1)
        c = y + b @ t[f"{name}.attention.output"].T
        if f"{name}.attention.output_bias" in t:
            c = c + t[f"{name}.attention.output_bias"]
        if kind == "post":
            c = norm(f"{name}.norm1", c)
        z = norm(f"{name}.norm2", c) if kind == "pre" else c
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
    """The read-out of every row, shape (n, classes)."""
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
    """Influence of every substitution, by rerunning; float64 (n, V), NaN where none.

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
