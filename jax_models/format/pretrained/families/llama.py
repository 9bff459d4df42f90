"""Llama, Mistral, Qwen2 and Qwen3: RMSNorm, rotary positions, gated blocks, grouped keys.

Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024 and 2025. They share names and
shapes: Qwen2 has biases on queries, keys and values; Llama and Qwen3 on all maps of
attention where `attention_bias` says so, Llama on those of blocks where `mlp_bias` does.
Qwen3 has norms of queries and keys. Functions add tensors and settings to `parts`, the
model's in this package's format; a map is a weight matrix.
"""

from typing import Any

from jax_models.arguments import expect_integer
from jax_models.format.pretrained.families.family import Family, plain_layers
from jax_models.format.pretrained.families.gpt2 import DECODER
from jax_models.format.pretrained.parts import (
    Parts,
    Source,
    name_projections,
    read_layer_types,
)
from jax_models.format.pretrained.rotary import rotary_of

LAYER = {
    **name_projections("self_attn.{1}_proj"),
    "output": "self_attn.o_proj",
    "norm1": "input_layernorm",
    "gate": "mlp.gate_proj",
    "w1": "mlp.up_proj",
    "w2": "mlp.down_proj",
    "norm2": "post_attention_layernorm",
}


def read_heads(parts: Parts, d: int) -> None:
    """Sets the numbers of heads and of key-value heads, and the width of a head."""
    folder = parts.folder
    parts.heads = folder.number("num_attention_heads")
    parts.groups = folder.number("num_key_value_heads", parts.heads)
    own = 128 if folder.config["model_type"] == "qwen3" else d // parts.heads
    parts.head_width = folder.number("head_dim", own)


def prepare(parts: Parts, prefix: str) -> None:
    """Sets biases and norms of heads, by which the four model types differ."""
    folder, kind = parts.folder, parts.folder.config["model_type"]
    biases = {"query", "key", "value"} if kind == "qwen2" else set()
    if kind in ("llama", "qwen3") and folder.flag("attention_bias", False):
        biases |= {"query", "key", "value", "output"}
    if kind == "llama" and folder.flag("mlp_bias", False):
        biases |= {"gate", "w1", "w2"}
    parts.biases = biases
    if kind == "qwen3":
        names = {f"{x}_norm": f"self_attn.{x[0]}_norm" for x in ("query", "key")}
        parts.names = {**parts.names, **names}
        norm = {"norm": "rms_norm", "layer_norm_epsilon": folder.get("layer_norm_eps")}
        parts.config |= dict.fromkeys(names, norm)


def put_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds all layers' tensors; returns their configs: rotary, head groups, windows."""
    layer = rotary_of(parts.folder, parts.head_width)
    if parts.groups != parts.heads:
        layer["key_value_heads"] = parts.groups
    count = len(plain_layers(parts, source))
    return [layer | window for window in _windows(parts.folder, count)]


def _windows(folder: Source, count: int) -> list[dict[str, int]]:
    """Returns each layer's config key `window`; {} for a layer without one."""
    kind, slides = folder.config["model_type"], [True] * count
    qwen = kind in ("qwen2", "qwen3")
    if kind == "llama" or (qwen and not folder.flag("use_sliding_window", False)):
        return [{}] * count
    if folder.config.get("sliding_window", 4096) is None:
        return [{}] * count
    if qwen:  # in Mistral all layers have a window
        first = folder.get("max_window_layers", 28)
        first = expect_integer(folder.where("max_window_layers"), first, 0)
        default = [("full", "sliding")[k >= first] + "_attention" for k in range(count)]
        known = ("full_attention", "sliding_attention")
        types = read_layer_types(folder, default, known)
        slides = [kind == "sliding_attention" for kind in types]
    window = folder.number("sliding_window", 4096)
    return [{"window": window} if slide else {} for slide in slides]


LLAMA = Family(
    embedding="embed_tokens.weight",
    others=("rotary_emb",),
    left_behind=tuple(
        f"{place}rotary_emb.{name}"
        for place in ("", "layers.#.self_attn.")
        for name in ("inv_freq", "original_inv_freq", "cos_cached", "sin_cached")
    ),
    heads=DECODER,
    layer=LAYER,
    norms={"final_norm": "norm"},
    norm="rms_norm",
    keys={"layer_norm_eps": "rms_norm_eps"},
    epsilon=1e-6,
    activation="silu",
    read_heads=read_heads,
    prepare=prepare,
    put_layers=put_layers,
    tied=False,
)
