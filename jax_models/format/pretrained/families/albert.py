"""ALBERT: a narrow embedding, and few layers that stand in many places (Lan et al. 2020).

A group of inner layers is stored once, and stands at one or more places of the stack.
Functions add tensors and config entries of this package's format to `parts`.
"""

from typing import Any

from jax_models.errors import InputError
from jax_models.format.pretrained.families import bert
from jax_models.format.pretrained.parts import Parts, name_projections

# Layers share tensors, so that missing tensors cannot reveal a wrong number of layers.
MOST_LAYERS = 10_000
LAYER = {
    **name_projections("attention.{0}"),
    "output": "attention.dense",
    "norm1": "attention.LayerNorm",
    "w1": "ffn",
    "w2": "ffn_output",
    "norm2": "full_layer_layer_norm",
}


def put_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds each layer's tensors at its first place; returns all config entries."""
    folder = parts.folder
    places = folder.number("num_hidden_layers")
    groups = folder.number("num_hidden_groups", 1)
    count = folder.number("inner_group_num", 1)
    entries, first = [], {}
    if places * count > MOST_LAYERS:
        raise InputError(
            f"{folder.where(f'num_hidden_layers = {places}')}, with {count} in each; "
            f"expected at most {MOST_LAYERS} in all"
        )
    # Each place consists of the inner layers of its group, which are stored at the group's
    # first place.
    for place in range(places):
        group = group_of(place, places, groups)
        for k in range(count):
            if (group, k) in first:
                entries.append({"same_as": first[group, k]})
                continue
            first[group, k] = len(entries)
            parts.move_layer(len(entries), f"{source}{group}.albert_layers.{k}.")
            entries.append({})
    return entries


def group_of(place: int, places: int, groups: int) -> int:
    """Index of the group of layers (shared weights) at place `place` of the stack."""
    # The package transformers divides so: of 14 groups in 18 places group 6 is at place 9.
    return int(place / (places / groups))


ALBERT = bert.bert_like(
    decoder="predictions.decoder.weight",
    heads=bert.HEADS
    | {
        # Dense to the embedding's width, activation, norm, embedding.
        "masked_lm": bert.head_of(
            "predictions.dense", norm="predictions.LayerNorm", bias="predictions.bias"
        ),
        "pooler": bert.head_of("{}pooler", "tanh"),
        "classifier": bert.head_of("{}pooler", "tanh", "classifier"),
    },
    layers="encoder.albert_layer_groups.",
    layer=LAYER,
    activation="gelu_new",
    narrow=True,
    put_layers=put_layers,
)
