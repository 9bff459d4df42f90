"""ModernBERT: pre-norm encoders with rotary positions and gated blocks (Warner et al. 2024).

Layers of full attention and of a sliding window turn by different frequencies. The first
layer has no norm before its attention: one stands behind the embedding.
"""

from typing import Any

import numpy as np

from jax_models.arguments import expect_integer
from jax_models.errors import InputError
from jax_models.format.pretrained.families.bert import put_decoder
from jax_models.format.pretrained.parts import (
    Parts,
    Source,
    expect_default,
    read_activation,
    read_layer_types,
    read_sizes,
)
from jax_models.format.pretrained.rotary import rotary_of

# By a layer's type: the older name of its theta, and its default.
THETA = {
    "full_attention": ("global_rope_theta", 160_000.0),
    "sliding_attention": ("local_rope_theta", 10_000.0),
}


def put_modernbert(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts)
    has_bias, parts.biases = folder.flag("norm_bias", False), False
    for key in ("attention_bias", "mlp_bias"):
        expect_default(folder, key, [False], "its maps are read without biases")
    parts.move("embedding", f"{prefix}embeddings.tok_embeddings.weight", vocab_size, d)
    parts.move_norm("entry.norm", f"{prefix}embeddings.norm", d, has_bias)
    inner = folder.number("intermediate_size")
    count = folder.number("num_hidden_layers")
    every = folder.number("global_attn_every_n_layers", 3)
    default = [list(THETA)[bool(k % every)] for k in range(count)]
    types = read_layer_types(folder, default, tuple(THETA))
    for k in range(len(types)):
        source, to = f"{prefix}layers.{k}.", f"layers.{k}."
        parts.split_heads(k, f"{source}attn.Wqkv.{{}}", heads)
        parts.move_map(k, "output", f"{source}attn.Wo", d, d, False)
        gate, w1 = np.split(folder.take(f"{source}mlp.Wi.weight", 2 * inner, d), 2)
        parts.put(f"{to}ffn.gate", gate)
        parts.put(f"{to}ffn.w1", w1)
        parts.move_map(k, "w2", f"{source}mlp.Wo", d, inner, False)
        if k:
            parts.move_norm(f"{to}norm1", f"{source}attn_norm", d, has_bias)
        parts.move_norm(f"{to}norm2", f"{source}mlp_norm", d, has_bias)
    parts.move_norm("final_norm", f"{prefix}final_norm", d, has_bias)
    entries = {kind: _attention(folder, kind, parts.head_width) for kind in set(types)}
    layers = [{"weighting": "softmax"} | entries[kind] for kind in types]
    layers[0]["norm1"] = False
    parts.config |= {
        "layer_norm": "pre",
        "layer_norm_epsilon": folder.get("norm_eps", 1e-5),
        "activation": read_activation(folder, "hidden_activation", "gelu"),
        "layers": layers,
    }


def _attention(folder: Source, kind: str, width: int) -> dict[str, Any]:
    """Returns the config keys `rotary` and `window` of layers of type `kind`."""
    older, theta = THETA[kind]
    if older in folder.config and folder.config[older] is None:
        # Versions of transformers differ in the frequencies that it stands for.
        raise InputError(f"{folder.where(older)} is null; expected a number")
    settings = rotary_of(folder, width, None, kind, older, theta)
    if kind == "full_attention":
        return settings
    whole = expect_integer(
        folder.where("local_attention"), folder.get("local_attention", 128), 0
    )
    return settings | {"window": whole // 2 + 1}


def masked_lm(parts: Parts, prefix: str) -> None:
    """Adds the masked LM head: dense, activation, norm and the decoder."""
    _head(parts)
    last = put_decoder(parts, 3)
    if parts.folder.flag("decoder_bias", True):
        parts.move("head.3.bias", "decoder.bias", parts.tensors["embedding"].shape[0])
    parts.config["head"] += [last]


def classifier(parts: Parts, prefix: str) -> None:
    """Adds the first row's classifier: dense, activation, norm and a map to the classes."""
    expect_default(
        parts.folder, "classifier_pooling", ["cls"], "a classifier reads the first row"
    )
    token_classifier(parts, prefix)


def token_classifier(parts: Parts, prefix: str) -> None:
    """Adds every row's classifier: dense, activation, norm and a map to the classes."""
    _head(parts)
    classes = parts.folder.rows("classifier.weight")
    parts.move_affine("head.3", "classifier", classes, parts.width)
    parts.config["head"] += ["linear"]


def _head(parts: Parts) -> None:
    folder, d = parts.folder, parts.width
    has_bias = folder.flag("classifier_bias", False)
    parts.move_affine("head.0", "head.dense", d, d, has_bias)
    parts.move_norm("head.2", "head.norm", d, folder.flag("norm_bias", False))
    epsilon = parts.config["layer_norm_epsilon"]
    parts.config["head"] = [
        "linear",
        read_activation(folder, "classifier_activation", "gelu"),
        {"norm": "layer_norm", "epsilon": epsilon},
    ]
