"""ALBERT: a narrow embedding, and few layers that stand in many places (Lan et al. 2020)."""

from jax_models.errors import InputError
from jax_models.format.pretrained.families.bert import embed_positions, put_masked_lm
from jax_models.format.pretrained.parts import (
    Parts,
    expect_default,
    heads_of,
    read_activation,
)

# No tensor is missing where layers share theirs, however many there are to be.
MOST_LAYERS = 10_000


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
    embed_positions(parts, f"{prefix}embeddings.", vocab_size, width)
    source = f"{prefix}encoder.embedding_hidden_mapping_in"
    parts.move("entry.projection", f"{source}.weight", d, width)
    parts.move("entry.projection_bias", f"{source}.bias", d)
    places, groups = (
        folder.number("num_hidden_layers"),
        folder.number("num_hidden_groups", 1),
    )
    inner, layers, first = folder.number("inner_group_num", 1), [], {}
    if places * inner > MOST_LAYERS:
        raise InputError(
            f"num_hidden_layers = {places} of {str(folder.path / 'config.json')!r}, with "
            f"{inner} in each; expected at most {MOST_LAYERS} in all"
        )
    for place in range(places):
        group = group_of(place, places, groups)
        for k in range(inner):
            if (group, k) in first:
                layers.append({"same_as": first[group, k]})
                continue
            first[group, k] = len(layers)
            name = f"encoder.albert_layer_groups.{group}.albert_layers.{k}."
            _put_layer(parts, len(layers), prefix + name, heads, d)
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


def _put_layer(parts: Parts, at: int, source: str, heads: int, d: int) -> None:
    to, inner = f"layers.{at}.", parts.folder.number("intermediate_size")
    for name in ("query", "key", "value"):
        parts.move_heads(at, name, f"{source}attention.{name}", heads, d)
    parts.move(f"{to}attention.output", f"{source}attention.dense.weight", d, d)
    parts.move(f"{to}attention.output_bias", f"{source}attention.dense.bias", d)
    parts.move_norm(f"{to}norm1", f"{source}attention.LayerNorm", d)
    parts.move(f"{to}ffn.w1", f"{source}ffn.weight", inner, d)
    parts.move(f"{to}ffn.b1", f"{source}ffn.bias", inner)
    parts.move(f"{to}ffn.w2", f"{source}ffn_output.weight", d, inner)
    parts.move(f"{to}ffn.b2", f"{source}ffn_output.bias", d)
    parts.move_norm(f"{to}norm2", f"{source}full_layer_layer_norm", d)


def masked_lm(parts: Parts, prefix: str) -> None:
    """Dense to the embedding's width, activation, norm, embedding."""
    put_masked_lm(
        parts,
        "predictions.dense",
        "predictions.LayerNorm",
        "predictions.decoder.weight",
        "predictions.bias",
    )


def pooler(parts: Parts, prefix: str) -> None:
    """Dense and tanh of the row that is watched, the first by custom."""
    d = parts.folder.number("hidden_size")
    parts.move_affine("head.0", f"{prefix}pooler", d, d)
    parts.config["head"] = ["linear", "tanh"]


def classifier(parts: Parts, prefix: str) -> None:
    """The pooler and a map to the classes."""
    pooler(parts, prefix)
    classes = parts.folder.rows("classifier.weight")
    d = parts.folder.number("hidden_size")
    parts.move_affine("head.2", "classifier", classes, d)
    parts.config["head"] += ["linear"]
