"""Llama, Mistral, Qwen2 and Qwen3: RMSNorm, rotary positions, gated blocks, grouped keys.

Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024 and 2025. They share names and
shapes: Qwen2 has biases on queries, keys and values; Llama and Qwen3 on all maps of
attention where `attention_bias` says so, Llama on those of blocks where `mlp_bias` does.
Qwen3 has norms of queries and keys.
"""

from typing import Any

from jax_models.arguments import expect_integer
from jax_models.format.pretrained.parts import (
    Parts,
    Source,
    read_activation,
    read_layer_types,
)
from jax_models.format.pretrained.rotary import rotary_of


def put_llama(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder = parts.folder
    d, vocab_size = folder.number("hidden_size"), folder.number("vocab_size")
    heads = folder.number("num_attention_heads")
    groups = folder.number("num_key_value_heads", heads)
    kind = folder.config["model_type"]
    parts.head_width = folder.number("head_dim", 128 if kind == "qwen3" else d // heads)
    joined, inner = heads * parts.head_width, folder.number("intermediate_size")
    biases = kind in ("llama", "qwen3") and folder.flag("attention_bias", False)
    block_biases = kind == "llama" and folder.flag("mlp_bias", False)
    parts.move("embedding", f"{prefix}embed_tokens.weight", vocab_size, d)
    count = folder.number("num_hidden_layers")
    for k in range(count):
        source, to = f"{prefix}layers.{k}.", f"layers.{k}."
        for name, own in (("query", heads), ("key", groups), ("value", groups)):
            whence = f"{source}self_attn.{name[0]}_proj"
            parts.move_heads(k, name, whence, own, d, biases or kind == "qwen2")
        parts.move_map(k, "output", f"{source}self_attn.o_proj", d, joined, biases)
        for name in ("query", "key") if kind == "qwen3" else ():
            whence = f"{source}self_attn.{name[0]}_norm.weight"
            parts.move(f"{to}attention.{name}_norm.scale", whence, parts.head_width)
        parts.move(f"{to}norm1.scale", f"{source}input_layernorm.weight", d)
        for name, whence, out, width in (
            ("gate", "gate", inner, d),
            ("w1", "up", inner, d),
            ("w2", "down", d, inner),
        ):
            whence = f"{source}mlp.{whence}_proj"
            parts.move_map(k, name, whence, out, width, block_biases)
        parts.move(f"{to}norm2.scale", f"{source}post_attention_layernorm.weight", d)
    parts.move("final_norm.scale", f"{prefix}norm.weight", d)
    layer: dict[str, Any] = {"weighting": "softmax", "mask": "future"}
    layer |= rotary_of(folder, parts.head_width)
    if groups != heads:
        layer["key_value_heads"] = groups
    epsilon = folder.get("rms_norm_eps", 1e-6)
    if kind == "qwen3":
        of_heads = {"norm": "rms_norm", "layer_norm_epsilon": epsilon}
        parts.config |= {"query_norm": of_heads, "key_norm": of_heads}
    parts.config |= {
        "norm": "rms_norm",
        "layer_norm": "pre",
        "layer_norm_epsilon": epsilon,
        "activation": read_activation(folder, "hidden_act", "silu"),
        "layers": [layer | window for window in _windows(folder, count)],
    }


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
