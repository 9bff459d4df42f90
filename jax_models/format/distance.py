"""Biases of the distance as entries of a config: docs/model-format.md, section 5."""

import dataclasses
from typing import Any

from jax import Array
from jaxtyping import Float

from jax_models.arguments import choose_name, expect_keys, expect_kind
from jax_models.model.distance import Alibi, DistanceBias, DistanceBuckets

# What a config names, and the shape of the tensor for the heads' number.
KINDS: dict[str, tuple[type[DistanceBias], tuple[str, ...]]] = {
    "alibi": (Alibi, ()),
    "buckets": (DistanceBuckets, ("buckets",)),
}


def check_distance(where: str, entry: Any) -> dict[str, Any] | None:
    """Returns the `distance_bias` entry of a layer, checked."""
    if entry is None:
        return None
    kind = entry.get("kind") if isinstance(entry, dict) else entry
    kind = choose_name(f"{where}.kind", kind, tuple(KINDS))
    expect_keys(where, entry, ["kind", *_options(KINDS[kind][0])])
    if kind == "buckets":
        both = entry.get("bidirectional", True)
        expect_kind(f"{where}.bidirectional", both, bool, "true or false")
    return entry


def decode_distance(entry: dict[str, Any], tensor: Float[Array, "..."]) -> DistanceBias:
    """The distance bias of a checked entry and its tensor."""
    options = {name: value for name, value in entry.items() if name != "kind"}
    return KINDS[entry["kind"]][0](tensor, **options)


def encode_distance(bias: DistanceBias | None) -> dict[str, Any] | None:
    """Returns the config entry of a bias."""
    if bias is None:
        return None
    kind = next(name for name, (one, _) in KINDS.items() if one is type(bias))
    return {"kind": kind} | {name: getattr(bias, name) for name in _options(type(bias))}


def tensor_of(bias: DistanceBias | None) -> Any:
    """The tensor that a file holds for a distance bias."""
    if bias is None:
        return None
    return bias.slopes if isinstance(bias, Alibi) else bias.table


def _options(kind: type[DistanceBias]) -> list[str]:
    fields = dataclasses.fields(kind)
    return [field.name for field in fields if field.metadata.get("static")]
