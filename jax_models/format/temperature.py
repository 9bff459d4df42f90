"""Temperatures as entries of a config, both ways: docs/model-format.md, section 2."""

from typing import Any

from jax_models.arguments import choose_name, expect_keys, expect_number
from jax_models.errors import InputError
from jax_models.model.attention import Schedule
from jax_models.model.mask import SIGHTS
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)


def decode_temperature(where: str, entry: Any, mask: str) -> Schedule | None:
    """Returns the schedule that a layer's `temperature` entry describes."""
    if entry is None:
        return None
    kinds = {
        "constant": ["kind", "value"],
        "inverse_log": ["kind", "scale"],
        "power": ["kind", "scale", "exponent", "of"],
    }
    kind = choose_name(
        f"{where}.kind",
        entry.get("kind") if isinstance(entry, dict) else entry,
        tuple(kinds),
    )
    expect_keys(where, entry, kinds[kind])
    if kind == "constant":
        return ConstantTemperature(
            expect_number(f"{where}.value", entry.get("value"), 0, above=True)
        )
    scale = expect_number(f"{where}.scale", entry.get("scale"), 0, above=True)
    if kind == "inverse_log":
        return InverseLogTemperature(scale)
    exponent = expect_number(f"{where}.exponent", entry.get("exponent"))
    of = choose_name(f"{where}.of", entry.get("of", "length"), ("length", "position"))
    if of == "position" and SIGHTS[mask].after:
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
            return {"kind": "constant", "value": _number(value)}
        case InverseLogTemperature(scale):
            return {"kind": "inverse_log", "scale": _number(scale)}
        case PowerTemperature(scale, exponent, of):
            entry = {"exponent": exponent, "of": of}
            return {"kind": "power", "scale": _number(scale), **entry}


def _number(value: Any) -> Any:
    """A number as a float; all else as it is, for a check to refuse."""
    scalar = isinstance(value, int | float) or getattr(value, "shape", None) == ()
    try:
        return float(value) if scalar and not isinstance(value, bool) else value
    except OverflowError:
        return value
