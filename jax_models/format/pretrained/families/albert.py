"""ALBERT: a narrow embedding, and few layers that stand in many places (Lan et al. 2020)."""

import functools

from jax_models.errors import InputError
from jax_models.format.pretrained.families import bert
from jax_models.format.pretrained.parts import (
    Parts,
    expect_default,
    heads_of,
    read_activation,
)

# No tensor is missing where layers share theirs, however many there are to be.
MOST_LAYERS = 10_000
LAYER = {
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "output": "attention.dense",
    "norm1": "attention.LayerNorm",
    "w1": "ffn",
    "w2": "ffn_output",
    "norm2": "full_layer_layer_norm",
}


def put_albert(parts: Parts, prefix: str) -> None:
    """Holds everything but the head.

    A place has the inner layers of its group, each of which is one layer, stored at the
    first place where it stands.
    """
    folder = parts.folder
    d, vocab_size = folder.number("hidden_size"), folder.number("vocab_size")
    heads, parts.head_width = heads_of(folder, d, "num_attention_heads")
    expect_default(
        folder, "position_embedding_type", ["absolute"], "positions are added"
    )
    width = folder.number("embedding_size", 128)
    bert.embed_positions(parts, f"{prefix}embeddings.", vocab_size, width)
    source = f"{prefix}encoder.embedding_hidden_mapping_in"
    parts.move("entry.projection", f"{source}.weight", d, width)
    parts.move("entry.projection_bias", f"{source}.bias", d)
    places = folder.number("num_hidden_layers")
    groups = folder.number("num_hidden_groups", 1)
    count = folder.number("inner_group_num", 1)
    inner = folder.number("intermediate_size")
    layers, first = [], {}
    if places * count > MOST_LAYERS:
        raise InputError(
            f"{folder.where(f'num_hidden_layers = {places}')}, with {count} in each; "
            f"expected at most {MOST_LAYERS} in all"
        )
    for place in range(places):
        group = group_of(place, places, groups)
        for k in range(count):
            if (group, k) in first:
                layers.append({"same_as": first[group, k]})
                continue
            first[group, k] = len(layers)
            name = f"encoder.albert_layer_groups.{group}.albert_layers.{k}."
            parts.move_layer(len(layers), prefix + name, LAYER, heads, inner)
            layers.append({"weighting": "softmax"})
    parts.config |= {
        "layer_norm": "post",
        "layer_norm_epsilon": folder.get("layer_norm_eps", 1e-12),
        "activation": read_activation(folder, "hidden_act", "gelu_new"),
        "layers": layers,
    }


def group_of(place: int, places: int, groups: int) -> int:
    """Returns the group that stands at a place: k G / L rounded down, in floating point.

    As transformers divides: of 14 groups in 18 places, group 6 stands at place 9.
    """
    return int(place / (places / groups))


# Dense to the embedding's width, activation, norm, embedding.
masked_lm = bert.masked_lm_of(
    "predictions.dense",
    "predictions.LayerNorm",
    "predictions.bias",
)
pooler = functools.partial(bert.pooler, dense="pooler")
classifier = functools.partial(bert.classifier, dense="pooler")
