"""Llama, Mistral and Qwen2: RMSNorm, rotary positions, gated blocks, grouped keys.

Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024. They share names and shapes: Qwen2
has biases on queries, keys and values, Llama where `attention_bias` says so.
"""

from typing import Any

from jax_models.arguments import choose_name
from jax_models.errors import InputError
from jax_models.format.pretrained.families.bert import put_decoder
from jax_models.format.pretrained.folder import Folder
from jax_models.format.pretrained.parts import Parts, expect_default, read_activation


def put_llama(parts: Parts, prefix: str) -> None:
    """Holds everything but the head."""
    folder = parts.folder
    d, vocab_size = folder.number("hidden_size"), folder.number("vocab_size")
    heads = folder.number("num_attention_heads")
    groups = folder.number("num_key_value_heads", heads)
    parts.head_width = folder.number("head_dim", d // heads)
    joined, inner = heads * parts.head_width, folder.number("intermediate_size")
    parts.move("embedding", f"{prefix}embed_tokens.weight", vocab_size, d)
    count = folder.number("num_hidden_layers")
    for k in range(count):
        source, to = f"{prefix}layers.{k}.", f"layers.{k}."
        for name, own in (("query", heads), ("key", groups), ("value", groups)):
            whence = f"{source}self_attn.{name[0]}_proj"
            has_bias = f"{whence}.bias" in folder
            parts.move_heads(k, name, whence, own, d, has_bias)
        whence = f"{source}self_attn.o_proj"
        parts.move(f"{to}attention.output", f"{whence}.weight", d, joined)
        if f"{whence}.bias" in folder:
            parts.move(f"{to}attention.output_bias", f"{whence}.bias", d)
        parts.move(f"{to}norm1.scale", f"{source}input_layernorm.weight", d)
        names = (("gate", "gate"), ("w1", "up"))
        for name, whence in names:
            _move_map(parts, f"{to}ffn.{name}", f"{source}mlp.{whence}_proj", inner, d)
        _move_map(parts, f"{to}ffn.w2", f"{source}mlp.down_proj", d, inner)
        parts.move(f"{to}norm2.scale", f"{source}post_attention_layernorm.weight", d)
    parts.move("final_norm.scale", f"{prefix}norm.weight", d)
    layer: dict[str, Any] = {"weighting": "softmax", "mask": "future"}
    if groups != heads:
        layer["key_value_heads"] = groups
    window = _window(folder)
    if window is not None:
        layer["window"] = window
    parts.config |= {
        "norm": "rms_norm",
        "layer_norm": "pre",
        "layer_norm_epsilon": folder.get("rms_norm_eps", 1e-6),
        "activation": read_activation(folder, "hidden_act", "silu"),
        "rotary": rotary_of(folder, parts.head_width),
        "layers": [dict(layer) for _ in range(count)],
    }


# Names of biases in the format, where they are not the map's name and `_bias`.
BIASES = {"w1": "b1", "w2": "b2", "gate": "gate_bias"}


def _move_map(parts: Parts, name: str, source: str, out: int, width: int) -> None:
    parts.move(name, f"{source}.weight", out, width)
    if f"{source}.bias" in parts.folder:
        block, _, last = name.rpartition(".")
        parts.move(f"{block}.{BIASES[last]}", f"{source}.bias", out)


def _window(folder: Folder) -> int | None:
    """How many tokens a row sees; None where it sees all before it."""
    if (
        folder.get("use_sliding_window", folder.config["model_type"] == "mistral")
        is False
    ):
        return None
    expect_default(folder, "max_window_layers", [0], "all layers slide, or none")
    return folder.get("sliding_window")


def rotary_of(folder: Folder, width: int) -> dict[str, Any]:
    """Returns the format's entry for the rotary positions of a configuration.

    They stand in `rope_parameters`, or in `rope_theta` and `rope_scaling` before it.
    """
    found = folder.get("rope_parameters") or folder.get("rope_scaling") or {}
    where = f"rope_parameters of {str(folder.path / 'config.json')!r}"
    if not isinstance(found, dict):
        raise InputError(f"{where} is {found!r}; expected an object")
    kind = found.get("rope_type", found.get("type", "default"))
    choose_name(f"rope_type in {where}", kind, ("default", "linear", "llama3"))
    theta = found.get("rope_theta", folder.get("rope_theta", 10000.0))
    share = found.get("partial_rotary_factor", folder.get("partial_rotary_factor", 1.0))
    entry: dict[str, Any] = {"dims": int(width * share), "theta": theta}
    if kind == "linear":
        entry["scaling"] = {"kind": "linear", "factor": found.get("factor")}
    if kind == "llama3":
        entry["scaling"] = {
            "kind": "llama3",
            "factor": found.get("factor"),
            "low_frequency_factor": found.get("low_freq_factor"),
            "high_frequency_factor": found.get("high_freq_factor"),
            "original_length": found.get("original_max_position_embeddings"),
        }
    return entry


def causal_lm(parts: Parts, prefix: str) -> None:
    """The next token's logits: the embedding as the map, or one of its own."""
    parts.config["head"] = [put_decoder(parts, 0, "lm_head.weight", tied=False)]


def classifier(parts: Parts, prefix: str) -> None:
    """A map to the classes, of the row that is watched, the last by custom."""
    parts.move_readout("score", bias=False)
