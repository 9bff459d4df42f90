"""Conversion of a configuration's rotary positions to the model format.

Configurations have `rope_parameters`, or the older `rope_scaling` with keys of their own
for theta, the base of the frequencies, and for the share of a head's coordinates that is
rotated; where several are present, they must agree. A scaling changes the frequencies.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_kind,
    expect_number,
    show,
)
from jax_models.errors import InputError
from jax_models.format.pretrained.parts import Source

# Keys of configurations with a scaling, and the scalings that are read.
KEYS = ("rope_parameters", "rope_scaling")
KINDS = ("default", "linear", "llama3", "yarn")
# Numbers of scalings in the format, and their keys in a configuration.
SCALINGS = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_frequency_factor": "low_freq_factor",
        "high_frequency_factor": "high_freq_factor",
        "original_length": "original_max_position_embeddings",
    },
}


def check_scalings(folder: Source) -> None:
    """Raises `InputError` for a scaling of rotary positions that is not in `KINDS`."""
    for key in KEYS:
        where, found = folder.where(key), folder.get(key, {})
        _read_kind(where, found)
        for name, entry in found.items():
            if isinstance(entry, dict):  # of layers of the type `name`
                _read_kind(f"{name} in {where}", entry)


def _read_kind(where: str, found: Any) -> str:
    """Returns the scaling that an entry `found` names, "default" if it names none."""
    expect_kind(where, found, dict, "an object")
    kind = found.get("rope_type", found.get("type", "default"))
    return choose_name(f"rope_type in {where}", kind, KINDS)


def rotary_of(
    folder: Source,
    width: int,  # of a head
    # Turned share of a head by default; None where whole heads turn.
    share: float | None = None,
    kind: str = "",  # of layers, the key of their entry in `rope_parameters`
    theta_key: str = "rotary_emb_base",  # of configurations without `rope_parameters`
    theta: float = 10_000.0,  # by default
) -> dict[str, Any]:
    """Layers' config values: `rotary` and, for YaRN scaling, `temperature`."""
    entries = {folder.where(key): folder.get(key) for key in KEYS}
    if kind:
        own, new = folder.where(KEYS[0]), folder.get(KEYS[0], {}).get(kind)
        entries = {f"{kind} in {own}": new} | entries
        del entries[own]
    entries = {where: found for where, found in entries.items() if found}

    def given(*names: str) -> dict[str, Any]:
        """Values of the configuration keys `names`, by the key's name in messages."""
        found = {
            f"{name} in {where}": entry.get(name)
            for where, entry in entries.items()
            for name in names
            if isinstance(entry, dict)
        } | {folder.where(name): folder.get(name) for name in names}
        return {where: x for where, x in found.items() if x is not None}

    thetas = {
        where: expect_number(where, x, 0, above=True)
        for where, x in given("rope_theta", theta_key).items()
    }
    if len(set(thetas.values())) > 1:
        each = " and ".join(f"{where} is {x:g}" for where, x in thetas.items())
        raise InputError(f"{each}, which disagree; leave one out")
    theta = next(iter(thetas.values()), theta)
    for where, x in given("partial_rotary_factor", "rotary_pct").items():
        if share is not None:
            share = expect_number(where, x, 0, above=True)
        elif x != 1:
            raise InputError(
                f"{where} is {show(x)}; expected 1: these families turn whole heads"
            )
    dims = width if share is None else int(width * share)
    length = folder.get("max_position_embeddings")
    settings = {
        where: _settings(where, found, dims, theta, length)
        for where, found in entries.items()
    } or {"": {"rotary": {"dims": dims, "theta": theta}}}
    (where, first), *others = settings.items()
    if others and others[0][1] != first:
        each = " and ".join(f"{where} is {show(x)}" for where, x in entries.items())
        raise InputError(f"{each}, which disagree; leave one out")
    if "temperature" in first and dims != width:
        raise InputError(
            f"{where} is of type yarn, whose factor of scores is not read where {dims} of "
            f"the {width} coordinates of a head are turned"
        )
    return first


def _settings(
    # words for the key of `found` in messages
    where: str,
    found: Any,
    dims: int,
    theta: float,
    # YaRN's original length where the entry has none
    length: Any,
) -> dict[str, Any]:
    """Config keys `rotary` and `temperature` for one entry with rotary settings, `found`."""
    kind = _read_kind(where, found)
    entry: dict[str, Any] = {"dims": dims, "theta": theta}
    if kind == "yarn":
        scaling, temperature = _yarn(where, found, dims, theta, length)
        return {"rotary": entry | {"scaling": scaling}, "temperature": temperature}
    if kind == "default":
        return {"rotary": entry}
    scaling = {"kind": kind} | {
        name: expect_number(f"{own} in {where}", found.get(own), 0, above=True)
        for name, own in SCALINGS[kind].items()
    }
    if kind == "llama3":
        own = SCALINGS[kind]["original_length"]
        scaling["original_length"] = expect_integer(f"{own} in {where}", found[own], 1)
    return {"rotary": entry | {"scaling": scaling}}


def _yarn(
    where: str, found: Mapping[str, Any], dims: int, theta: float, length: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entries `scaling` and `temperature` of YaRN, for longer texts (Peng et al. 2024)."""

    def number(name: str, default: Any = None) -> float:
        value = default if found.get(name) is None else found[name]
        return expect_number(f"{name} in {where}", value, 0, above=True)

    def gain(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    factor = number("factor")
    original = number("original_max_position_embeddings", length)
    turns = np.array([number("beta_fast", 32), number("beta_slow", 1)])
    expect_number(f"theta of YaRN in {where}", theta, 1, above=True)
    pair = dims * np.log(original / (turns * 2 * math.pi))
    low, high = pair / (2 * math.log(theta))
    if found.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    high += 0.001 * (low == high)
    # Pairs that turn more than `beta_fast` times within the original length keep their
    # frequency; that of those that turn less than `beta_slow` times is divided.
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
    plain = theta ** (-np.arange(0, dims, 2) / dims)
    listed = plain / factor * ramp + plain * (1 - ramp)
    default = gain(1.0)
    if found.get("mscale") and found.get("mscale_all_dim"):
        default = gain(number("mscale")) / gain(number("mscale_all_dim"))
    # Queries and keys are both multiplied by the attention factor.
    value = number("attention_factor", default) ** -2
    return (
        {"kind": "listed", "frequencies": listed.tolist()},
        {"kind": "constant", "value": value},
    )
