"""ALBERT: a narrow embedding, and few layers that stand in many places (Lan et al. 2020)."""

from jax_models.errors import InputError
from jax_models.format.pretrained.families import bert
from jax_models.format.pretrained.parts import (
    Parts,
    read_activation,
    read_sizes,
)

# Layers share tensors, so that missing tensors cannot reveal a wrong number of layers.
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
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts)
    width = folder.number("embedding_size", 128)
    bert.embed(parts, prefix, vocab_size, width)
    bert.project(parts, f"{prefix}encoder.embedding_hidden_mapping_in", d, width)
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
    # Each place consists of the inner layers of its group, which are stored at the group's
    # first place.
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
    """Returns the group at a place."""
    # The package transformers divides so: of 14 groups in 18 places group 6 is at place 9.
    return int(place / (places / groups))


# Dense to the embedding's width, activation, norm, embedding.
masked_lm = bert.masked_lm_of(
    "predictions.dense",
    "predictions.LayerNorm",
    "predictions.bias",
)
