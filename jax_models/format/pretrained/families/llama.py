"""Llama, Mistral and Qwen2: RMSNorm, rotary positions, gated blocks, grouped keys.

Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024. They share names and shapes: Qwen2
has biases on queries, keys and values; Llama on all maps of attention where
`attention_bias` says so, on those of blocks where `mlp_bias` does.
"""

from typing import Any

from jax_models.arguments import (
    choose_name,
    choose_names,
    expect_integer,
    expect_number,
    show,
)
from jax_models.errors import InputError
from jax_models.format.pretrained.parts import Parts, read_activation
from jax_models.format.pretrained.source import Source


def put_llama(parts: Parts, prefix: str) -> None:
    """Holds everything but the head."""
    folder = parts.folder
    d, vocab_size = folder.number("hidden_size"), folder.number("vocab_size")
    heads = folder.number("num_attention_heads")
    groups = folder.number("num_key_value_heads", heads)
    parts.head_width = folder.number("head_dim", d // heads)
    joined, inner = heads * parts.head_width, folder.number("intermediate_size")
    llama, qwen = (folder.config["model_type"] == x for x in ("llama", "qwen2"))
    biases = llama and folder.flag("attention_bias", False)
    block_biases = llama and folder.flag("mlp_bias", False)
    parts.move("embedding", f"{prefix}embed_tokens.weight", vocab_size, d)
    count = folder.number("num_hidden_layers")
    for k in range(count):
        source, to = f"{prefix}layers.{k}.", f"layers.{k}."
        for name, own in (("query", heads), ("key", groups), ("value", groups)):
            whence = f"{source}self_attn.{name[0]}_proj"
            parts.move_heads(k, name, whence, own, d, biases or qwen)
        whence = f"{source}self_attn.o_proj"
        parts.move(f"{to}attention.output", f"{whence}.weight", d, joined)
        if biases:
            parts.move(f"{to}attention.output_bias", f"{whence}.bias", d)
        parts.move(f"{to}norm1.scale", f"{source}input_layernorm.weight", d)
        for name, bias, whence, shape in (
            ("gate", "gate_bias", "gate", (inner, d)),
            ("w1", "b1", "up", (inner, d)),
            ("w2", "b2", "down", (d, inner)),
        ):
            whence = f"{source}mlp.{whence}_proj"
            parts.move(f"{to}ffn.{name}", f"{whence}.weight", *shape)
            if block_biases:
                parts.move(f"{to}ffn.{bias}", f"{whence}.bias", shape[0])
        parts.move(f"{to}norm2.scale", f"{source}post_attention_layernorm.weight", d)
    parts.move("final_norm.scale", f"{prefix}norm.weight", d)
    layer: dict[str, Any] = {"weighting": "softmax", "mask": "future"}
    if groups != heads:
        layer["key_value_heads"] = groups
    parts.config |= {
        "norm": "rms_norm",
        "layer_norm": "pre",
        "layer_norm_epsilon": folder.get("rms_norm_eps", 1e-6),
        "activation": read_activation(folder, "hidden_act", "silu"),
        "rotary": rotary_of(folder, parts.head_width),
        "layers": [layer | window for window in _windows(folder, count)],
    }


def _windows(folder: Source, count: int) -> list[dict[str, int]]:
    """What layers say of how many tokens a row sees; nothing where it sees all before it.

    All of Mistral's layers slide; Qwen2's where it is switched on, from one layer on or
    those that are listed.
    """
    kind, slides = folder.config["model_type"], [True] * count
    if kind == "llama" or (
        kind == "qwen2" and not folder.flag("use_sliding_window", False)
    ):
        return [{}] * count
    if folder.config.get("sliding_window", 4096) is None:
        return [{}] * count
    if kind == "qwen2":
        first = folder.get("max_window_layers", 28)
        first = expect_integer(folder.where("max_window_layers"), first, 0)
        default = [("full", "sliding")[k >= first] + "_attention" for k in range(count)]
        types = folder.get("layer_types", default)
        where = folder.where("layer_types")
        choose_names(where, types, ("full_attention", "sliding_attention"))
        if len(types) != count:
            raise InputError(f"{where} lists {len(types)} layers; expected {count}")
        slides = [kind == "sliding_attention" for kind in types]
    window = folder.number("sliding_window", 4096)
    return [{"window": window} if slide else {} for slide in slides]


def rotary_of(folder: Source, width: int) -> dict[str, Any]:
    """Returns the format's entry for the rotary positions of a configuration.

    They stand in `rope_parameters`, or in `rope_theta` and `rope_scaling` before it; where
    a configuration has both, they have to mean one thing: readers of it differ in which
    they take.
    """
    keys = [x for x in ("rope_parameters", "rope_scaling") if folder.get(x)]
    scalings = [_scaling(folder, key) for key in keys]
    if scalings[1:] and scalings[0] != scalings[1]:
        found, older = (show(folder.get(key)) for key in keys)
        raise InputError(
            f"{folder.where(keys[0])} is {found} and `rope_scaling` {older}, which "
            "disagree; leave one out"
        )
    said = {f" in {key}": folder.get(key) for key in keys} | {"": folder.config}
    thetas = {
        (where := folder.where(f"rope_theta{place}")): expect_number(
            where, one["rope_theta"], 0, above=True
        )
        for place, one in said.items()
        if one.get("rope_theta") is not None
    }
    if len(set(thetas.values())) > 1:
        each = " and ".join(f"{where} is {theta:g}" for where, theta in thetas.items())
        raise InputError(f"{each}, which disagree; leave one out")
    for place, one in said.items():
        if (share := one.get("partial_rotary_factor")) not in (None, 1):
            where = folder.where(f"partial_rotary_factor{place}")
            raise InputError(
                f"{where} is {show(share)}; expected 1: these families turn whole heads"
            )
    entry = {"dims": width, "theta": next(iter(thetas.values()), 10000.0)}
    scaling = next(iter(scalings), None)
    return entry if scaling is None else entry | {"scaling": scaling}


def _scaling(folder: Source, key: str) -> dict[str, Any] | None:
    """The format's entry for a scaling of positions, by the key that has it."""
    where, found = folder.where(key), folder.get(key)
    if not isinstance(found, dict):
        raise InputError(f"{where} is {show(found)}; expected an object")
    kind = found.get("rope_type", found.get("type", "default"))
    choose_name(f"rope_type in {where}", kind, ("default", "linear", "llama3"))
    names = {"factor": "factor"} if kind != "default" else {}
    if kind == "llama3":
        names |= {
            "low_frequency_factor": "low_freq_factor",
            "high_frequency_factor": "high_freq_factor",
        }
    scaling: dict[str, Any] = {
        name: expect_number(f"{own} in {where}", found.get(own), 0, above=True)
        for name, own in names.items()
    }
    if kind == "llama3":
        own = "original_max_position_embeddings"
        length = expect_integer(f"{own} in {where}", found.get(own), 1)
        scaling["original_length"] = length
    return {"kind": kind} | scaling if scaling else None
