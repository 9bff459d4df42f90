"""Rotary positions as entries of a config, both ways: docs/model-format.md, section 5."""

import dataclasses
from typing import Any

from jax_models.arguments import choose_name, expect_keys
from jax_models.errors import InputError
from jax_models.model.rotary import (
    LinearScaling,
    ListedFrequencies,
    Llama3Scaling,
    Rotary,
)
from jax_models.model.scores import SCORES

SCALINGS = {
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "listed": ListedFrequencies,
}


def decode_rotary(where: str, entry: Any, score: str) -> Rotary | None:
    """The rotary positions that a layer's `rotary` entry describes."""
    if entry is None:
        return None
    expect_keys(where, entry, [field.name for field in dataclasses.fields(Rotary)])
    if score in SCORES and not SCORES[score].bilinear:
        raise InputError(f"{where} goes only with dot-product scores, found {score!r}")
    scaling = entry.get("scaling")
    if scaling is not None:
        kind = scaling.get("kind") if isinstance(scaling, dict) else scaling
        kind = SCALINGS[choose_name(f"{where}.scaling.kind", kind, tuple(SCALINGS))]
        names = [field.name for field in dataclasses.fields(kind)]
        expect_keys(f"{where}.scaling", scaling, ["kind", *names])
        scaling = kind(*(scaling.get(name) for name in names))
    return Rotary(
        entry.get("dims"),
        entry.get("theta", 10000),
        entry.get("pairing", "half"),
        scaling,
    )


def encode_rotary(rotary: Rotary | None) -> dict[str, Any] | None:
    """Returns the config entry of rotary positions."""
    if rotary is None:
        return None
    entry = dataclasses.asdict(rotary)
    kinds = {kind: name for name, kind in SCALINGS.items()}
    if rotary.scaling is not None:
        entry["scaling"]["kind"] = kinds[type(rotary.scaling)]
    return entry
