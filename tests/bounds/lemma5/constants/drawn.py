"""Random models as files hold them: for the oracle as they are, for the packages built.

Everything the format allows under softmax: both forms, all scores, masks, norms,
temperatures and positions, biases or none, heads whose number and widths differ from
layer to layer.
"""

import dataclasses
import math
from typing import Any

import numpy as np

import jax_models as jm
from bounds.lemma5.closed_form import MASKS
from jax_models.format.build import build_model

WIDTH, HIDDEN, VOCABULARY, LONGEST = 6, 7, 3, 64


def power(scale: float, exponent: float, **of: str) -> dict[str, Any]:
    """A temperature that is a power of the length, or of the position."""
    return {"kind": "power", "scale": scale, "exponent": exponent, **of}


TEMPERATURES: dict[str, dict[str, Any] | None] = {
    "1": None,
    "constant": {"kind": "constant", "value": 0.6},
    "inverse_log": {"kind": "inverse_log", "scale": 1.5},
    "power": power(1.2, -0.2),
    "falls with position": power(1.2, -0.2, of="position"),
    "grows with position": power(0.8, 0.3, of="position"),
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "combine": ("residual", "concat"),
    "layer_norm": ("none", "pre", "post"),
    "epsilon": (1e-5, 0.1),
    "score": ("dot_product", "scaled_dot_product", "additive"),
    "num_layers": (1, 2, 3, 4),
    "num_heads": (1, 2, 3, 4),
    "masks": (*((mask,) for mask in MASKS), ("none", "future")),
    "temperature": tuple(TEMPERATURES),
    "biases": (True, False),
    "activation": ("relu", "gelu"),
    "scale": (0.1, 0.3, 1.0, 3.0),
    "position": ("sinusoidal", "table", "none"),
    "final_norm": (False, True),
    "target": ("activation", "logits"),
}


def allowed(case: dict[str, Any]) -> bool:
    """The format's restrictions: concatenation without norms, positions seen before."""
    concat = case.get("combine") == "concat"
    of_position = "position" in case.get("temperature", "1")
    causal = all("future" in mask for mask in case.get("masks", ("future",)))
    return (not concat or case.get("layer_norm", "none") == "none") and (
        not of_position or causal
    )


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A model for the oracle, and the same one built."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    model: jm.Transformer
    target: str

    def scaled(self, factor: float, *parts: str) -> "Drawn":
        """The tensors whose names hold one of the parts times a factor."""
        tensors = {
            name: x * factor if any(part in name for part in parts) else x
            for name, x in self.tensors.items()
        }
        model = build_model(self.config, tensors)
        return dataclasses.replace(self, tensors=tensors, model=model)


def draw(seed: int, **case: Any) -> Drawn:
    """Gaussian weights: the scale over the square root of the fan-in.

    Args:
        seed: Of the weights.
        case: Some of `FACTORS`, their first values by default.
    """
    case = {**{name: values[0] for name, values in FACTORS.items()}, **case}
    rng = np.random.default_rng(seed)
    scale, concat = case["scale"], case["combine"] == "concat"
    tensors: dict[str, np.ndarray] = {}

    def matrix(name: str, *shape: int, fan_in: int | None = None) -> None:
        size = scale / math.sqrt(fan_in or shape[-1])
        tensors[name] = size * rng.normal(size=shape)

    def bias(name: str, *shape: int) -> None:
        tensors[name] = 0.3 * scale * rng.normal(size=shape) * case["biases"]

    def norm(name: str) -> None:
        tensors[f"{name}.scale"] = 1 + 0.3 * rng.normal(size=WIDTH)
        bias(f"{name}.bias", WIDTH)

    matrix("embedding", VOCABULARY, WIDTH)
    config: dict[str, Any] = {
        "format": "attention-bounds/1",
        "layer_norm": case["layer_norm"],
        "layer_norm_epsilon": case["epsilon"],
        "activation": case["activation"],
        "combine": case["combine"],
        "layers": [],
    }
    if case["position"] == "table":
        matrix("position", LONGEST, WIDTH)
    elif case["position"] == "sinusoidal":
        config["position"] = {"kind": "sinusoidal", "base": 100, "scale": 0.5}
    for number in range(case["num_layers"]):
        heads = 1 + (case["num_heads"] - 1 + number) % 4
        keys, values = 2 + number % 2, 3 - number % 2
        mask = case["masks"][number % len(case["masks"])]
        layer = {"weighting": "softmax", "mask": mask, "score": case["score"]}
        layer["temperature"] = TEMPERATURES[case["temperature"]]
        config["layers"].append(layer)
        name = f"layers.{number}.attention"
        for part, size in (("query", keys), ("key", keys), ("value", values)):
            matrix(f"{name}.{part}", heads, size, WIDTH)
            if case["biases"]:
                bias(f"{name}.{part}_bias", heads, size)
        if case["score"] == "additive":
            matrix(f"{name}.score_vector", heads, keys, fan_in=1)
        incoming = WIDTH + heads * values if concat else WIDTH
        if not concat:
            matrix(f"{name}.output", WIDTH, heads * values)
            if case["biases"]:
                bias(f"{name}.output_bias", WIDTH)
        name = f"layers.{number}.ffn"
        matrix(f"{name}.w1", HIDDEN, incoming)
        bias(f"{name}.b1", HIDDEN)
        matrix(f"{name}.w2", WIDTH, HIDDEN)
        bias(f"{name}.b2", WIDTH)
        if case["layer_norm"] != "none":
            norm(f"layers.{number}.norm1")
            norm(f"layers.{number}.norm2")
    if case["final_norm"]:
        norm("final_norm")
    if case["target"] == "logits":
        matrix("readout.weight", 3, WIDTH)
        bias("readout.bias", 3)
    return Drawn(config, tensors, build_model(config, tensors), case["target"])
