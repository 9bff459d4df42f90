"""The JSON config of a model file: what is not a tensor, both ways.

The format page leaves open where `combine` and `tie_resolution` stand: they are read at
the top level or in a layer's entry (the entry wins) and written at the top level where
all layers agree.
"""

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

from jax_models.attention import SCORES, Schedule
from jax_models.errors import InputError
from jax_models.layers import ACTIVATIONS, Accept
from jax_models.mask import MASKS
from jax_models.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.transformer import COMBINATIONS, NORM_PLACEMENTS, Transformer
from jax_models.weighting import WEIGHTINGS

FORMAT = "attention-bounds/1"
TOP_KEYS = (
    "format layer_norm layer_norm_epsilon activation combine tie_resolution layers "
    "vocabulary substitutable position accept"
).split()
LAYER_KEYS = "weighting mask score temperature combine tie_resolution".split()


def expect_keys(where: str, entry: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Returns the entry if it is an object with allowed keys only."""
    if not isinstance(entry, dict):
        raise InputError(f"{where} is {type(entry).__name__}; expected an object")
    for key in entry:
        if key not in allowed:
            raise InputError(
                f"{where} has the unknown key {key!r}; expected one of "
                f"{', '.join(allowed)}"
            )
    return entry


def expect_name(where: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Returns a keyword if it is an allowed one."""
    if value not in allowed:
        raise InputError(f"{where} = {value!r}; expected one of {', '.join(allowed)}")
    return value


def expect_number(where: str, value: Any, minimum: float = -math.inf) -> float:
    """Returns a finite number of at least (for 0: above) `minimum`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max:
        raise InputError(f"{where} = {value!r}; expected a finite number")
    if value < minimum:
        raise InputError(f"{where} = {value!r}; expected at least {minimum}")
    return float(value)


def _positive(where: str, value: Any) -> float:
    number = expect_number(where, value)
    if number <= 0:
        raise InputError(f"{where} = {value!r}; expected a positive number")
    return number


def expect_integer(where: str, value: Any, minimum: int) -> int:
    """Returns an integer of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InputError(f"{where} = {value!r}; expected an integer >= {minimum}")
    return value


def decode_temperature(where: str, entry: Any, mask: str) -> Schedule | None:
    """Returns the schedule that a layer's `temperature` entry describes."""
    if entry is None:
        return None
    kinds = {
        "constant": ["kind", "value"],
        "inverse_log": ["kind", "scale"],
        "power": ["kind", "scale", "exponent", "of"],
    }
    kind = expect_name(
        f"{where}.kind",
        entry.get("kind") if isinstance(entry, dict) else entry,
        tuple(kinds),
    )
    expect_keys(where, entry, kinds[kind])
    if kind == "constant":
        return ConstantTemperature(_positive(f"{where}.value", entry.get("value")))
    scale = _positive(f"{where}.scale", entry.get("scale"))
    if kind == "inverse_log":
        return InverseLogTemperature(scale)
    exponent = expect_number(f"{where}.exponent", entry.get("exponent"))
    of = expect_name(f"{where}.of", entry.get("of", "length"), ("length", "position"))
    if of == "position" and mask not in ("future", "strict_future"):
        raise InputError(
            f'{where}.of = "position" needs a future mask, the layer has {mask!r}'
        )
    return PowerTemperature(
        scale, exponent, "position" if of == "position" else "length"
    )


def encode_temperature(temperature: Schedule | None) -> dict[str, Any] | None:
    """Returns the config entry of a schedule."""
    match temperature:
        case None:
            return None
        case ConstantTemperature(value):
            return {"kind": "constant", "value": float(value)}
        case InverseLogTemperature(scale):
            return {"kind": "inverse_log", "scale": float(scale)}
        case PowerTemperature(scale, exponent, of):
            return {
                "kind": "power",
                "scale": float(scale),
                "exponent": exponent,
                "of": of,
            }


POWER_KEYS = "coordinate scale position_power length_power alternating offset".split()
RESIDUE_KEYS = "coordinate modulus residues offset".split()


def decode_position(entry: Any) -> Sinusoidal | Coordinates | None:
    """Returns the position formula that the config names."""
    if entry is None:
        return None
    kind = expect_name(
        "position.kind",
        entry.get("kind") if isinstance(entry, dict) else entry,
        ("sinusoidal", "coordinates"),
    )
    if kind == "sinusoidal":
        expect_keys("position", entry, ["kind", "base", "scale"])
        base = _positive("position.base", entry.get("base", 10000))
        return Sinusoidal(base, expect_number("position.scale", entry.get("scale", 1)))
    expect_keys("position", entry, ["kind", "terms"])
    terms = entry.get("terms")
    if not isinstance(terms, list):
        raise InputError(f"position.terms = {terms!r}; expected a list of terms")
    return Coordinates(tuple(map(_decode_term, range(len(terms)), terms)))


def _decode_term(at: int, entry: Any) -> PowerTerm | ResidueTerm:
    where = f"position.terms[{at}]"
    residue = isinstance(entry, dict) and "modulus" in entry
    expect_keys(where, entry, RESIDUE_KEYS if residue else POWER_KEYS)
    coordinate = expect_integer(f"{where}.coordinate", entry.get("coordinate"), 0)
    offset = expect_number(f"{where}.offset", entry.get("offset", 1))
    if residue:
        modulus = expect_integer(f"{where}.modulus", entry["modulus"], 1)
        residues = entry.get("residues")
        if not isinstance(residues, list):
            raise InputError(f"{where}.residues = {residues!r}; expected a list")
        found = tuple(expect_integer(f"{where}.residues", r, 0) for r in residues)
        return ResidueTerm(coordinate, modulus, found, offset)
    alternating = entry.get("alternating", False)
    if not isinstance(alternating, bool):
        raise InputError(
            f"{where}.alternating = {alternating!r}; expected true or false"
        )
    return PowerTerm(
        coordinate,
        expect_number(f"{where}.scale", entry.get("scale", 1)),
        expect_number(f"{where}.position_power", entry.get("position_power", 0)),
        expect_number(f"{where}.length_power", entry.get("length_power", 0)),
        alternating,
        offset,
    )


def encode_position(position: Any) -> dict[str, Any] | None:
    """Returns the config entry of a position formula; None for a table or none."""
    if position is None or isinstance(position, PositionTable):
        return None
    if isinstance(position, Sinusoidal):
        return {"kind": "sinusoidal", "base": position.base, "scale": position.scale}
    terms = [dataclasses.asdict(term) for term in position.terms]
    for term in terms:
        if "residues" in term:
            term["residues"] = list(term["residues"])
    return {"kind": "coordinates", "terms": terms}


def decode_config(config: Any) -> dict[str, Any]:
    """Returns the checked config with defaults filled in and layers resolved.

    Raises:
        InputError: naming the key, what was found and what was expected.
    """
    expect_keys("config", config, TOP_KEYS)
    if config.get("format") != FORMAT:
        raise InputError(
            f"config.format = {config.get('format')!r}; this version reads {FORMAT!r}"
        )
    checked = dict(config)
    checked["layer_norm"] = expect_name(
        "layer_norm", config.get("layer_norm", "none"), NORM_PLACEMENTS
    )
    checked["layer_norm_epsilon"] = expect_number(
        "layer_norm_epsilon", config.get("layer_norm_epsilon", 1e-5), 0
    )
    checked["activation"] = expect_name(
        "activation", config.get("activation", "relu"), ACTIVATIONS
    )
    layers = config.get("layers")
    if not isinstance(layers, list):
        raise InputError(f"config.layers = {layers!r}; expected a list of layers")
    checked["layers"] = [
        _decode_layer(f"layers[{k}]", entry, checked) for k, entry in enumerate(layers)
    ]
    for name, kind in (("vocabulary", str), ("substitutable", int)):
        entry = config.get(name)
        listed = isinstance(entry, list) and all(type(item) is kind for item in entry)
        if entry is not None and not listed:
            raise InputError(f"{name} = {entry!r}; expected a list of {kind.__name__}")
    checked["position"] = decode_position(config.get("position"))
    accept = config.get("accept")
    if accept is not None:
        expect_keys("accept", accept, ["class", "threshold"])
        checked["accept"] = Accept(
            expect_integer("accept.class", accept.get("class"), 0),
            expect_number("accept.threshold", accept.get("threshold")),
        )
    return checked


def _decode_layer(where: str, entry: Any, top: dict[str, Any]) -> dict[str, Any]:
    expect_keys(where, entry, LAYER_KEYS)
    mask = expect_name(f"{where}.mask", entry.get("mask", "none"), MASKS)
    combine = entry.get("combine", top.get("combine", "residual"))
    expect_name(f"{where}.combine", combine, COMBINATIONS)
    if combine == "concat" and top["layer_norm"] != "none":
        raise InputError(
            f'{where}.combine = "concat" goes only with layer_norm "none", found '
            f"{top['layer_norm']!r}"
        )
    resolution = entry.get("tie_resolution", top.get("tie_resolution"))
    if resolution is not None:
        resolution = _positive(f"{where}.tie_resolution", resolution)
    weighting = expect_name(
        f"{where}.weighting", entry.get("weighting"), tuple(WEIGHTINGS)
    )
    score = entry.get("score", "scaled_dot_product")
    return {
        "weighting": weighting,
        "mask": mask,
        "score": expect_name(f"{where}.score", score, SCORES),
        "temperature": decode_temperature(
            f"{where}.temperature", entry.get("temperature"), mask
        ),
        "combine": combine,
        "tie_resolution": resolution,
    }


def encode_config(model: Transformer) -> dict[str, Any]:
    """Returns the JSON config of a model."""
    layers = []
    for layer in model.layers:
        attention = layer.attention
        layers.append(
            {
                "weighting": attention.weighting.name,
                "mask": attention.mask,
                "score": attention.score,
                "temperature": encode_temperature(attention.temperature),
                "combine": layer.combine,
                "tie_resolution": getattr(attention.weighting, "tie_resolution", None),
            }
        )
    norms = [layer.norm1 for layer in model.layers] + [model.final_norm]
    epsilons = {norm.epsilon for norm in norms if norm is not None}
    config: dict[str, Any] = {
        "format": FORMAT,
        "layer_norm": _agreed(
            "layer_norm", [x.layer_norm for x in model.layers], "none"
        ),
        "layer_norm_epsilon": _agreed("layer_norm_epsilon", list(epsilons), 1e-5),
        "activation": _agreed(
            "activation", [x.feed_forward.activation for x in model.layers], "relu"
        ),
        "layers": layers,
    }
    for name, default in (("combine", "residual"), ("tie_resolution", None)):
        values = [entry[name] for entry in layers]
        if len(set(values)) <= 1:
            for entry in layers:
                del entry[name]
            if values and values[0] != default:
                config[name] = values[0]
    position = encode_position(model.position)
    if position is not None:
        config["position"] = position
    if model.vocabulary is not None:
        config["vocabulary"] = list(model.vocabulary)
    if model.substitutable is not None:
        config["substitutable"] = list(model.substitutable)
    if model.accept is not None:
        config["accept"] = {
            "class": model.accept.class_,
            "threshold": model.accept.threshold,
        }
    return config


def _agreed(name: str, values: list[Any], default: Any) -> Any:
    if len(set(values)) > 1:
        raise InputError(
            f"the file format holds one {name} for all layers, the model has "
            f"{sorted(set(values))}"
        )
    return values[0] if values else default
