"""The transformer of the model format, written a second time, as plainly as possible.

This is the oracle of the test suite and of `benchmarks.exact_values`. It is written from the
text of docs/model-format.md alone, shares no line with the packages under test, stores n x n
arrays without shame and knows two arithmetics: float64, and mpmath with any number of
digits. It takes what a file holds: the configuration as a dictionary, and the tensors by
name.

Shapes: n tokens, width d, H heads of key width d_k and value width d_v.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors

from benchmarks.arithmetic import EXACT, FLOAT64, Arithmetic, multiprecision
from benchmarks.reference_attention import (
    head_output,
    row_weights,
    scores,
    temperatures,
    visible,
)

__all__ = [
    "FLOAT64",
    "Arithmetic",
    "multiprecision",
    "row_weights",
    "scores",
    "temperatures",
    "visible",
]

from benchmarks.reference_rows import activate, layer_norm, read_head, rms_norm

Config = Mapping[str, Any]
Tensors = Mapping[str, np.ndarray]


def read_file(path: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the tensors of a model file."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        assert set(metadata) == {"config"}, metadata
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    return json.loads(metadata["config"]), tensors


# ---------------------------------------------------------------------- positions


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
