"""GPT-2: pre-norm decoders whose maps are stored (in, out) (Radford et al. 2019)."""

import numpy as np

from jax_models.format.pretrained.families.bert import put_decoder
from jax_models.format.pretrained.parts import (
    Parts,
    expect_default,
    heads_of,
    read_activation,
)


def put_gpt2(parts: Parts, prefix: str) -> None:
    """Holds everything but the head.

    `scale_attn_by_inverse_layer_idx` divides the scores of layer k by k + 1: a temperature.
    """
    folder = parts.folder
    d, vocab_size = folder.number("n_embd"), folder.number("vocab_size")
    heads, width = heads_of(folder, d, "n_head")
    expect_default(
        folder, "add_cross_attention", [False], "there is no second sequence"
    )
    inner = folder.number("n_inner", 4 * d)
    length = folder.number("n_positions", folder.get("n_ctx"))
    parts.move("embedding", f"{prefix}wte.weight", vocab_size, d)
    parts.move("position", f"{prefix}wpe.weight", length, d)
    layers = []
    for k in range(folder.number("n_layer")):
        source, to = f"{prefix}h.{k}.", f"layers.{k}."
        fused = folder.take(f"{source}attn.c_attn.weight", d, 3 * d)
        offset = folder.take(f"{source}attn.c_attn.bias", 3 * d)
        names = ("query", "key", "value")
        for name, weight, bias in zip(
            names, np.split(fused, 3, axis=1), np.split(offset, 3), strict=True
        ):
            parts.put(f"{to}attention.{name}", weight.T.reshape(heads, width, d))
            parts.put(f"{to}attention.{name}_bias", bias.reshape(heads, width))
        _move_turned(parts, f"{to}attention.output", f"{source}attn.c_proj", d, d)
        parts.move(f"{to}attention.output_bias", f"{source}attn.c_proj.bias", d)
        parts.move_norm(f"{to}norm1", f"{source}ln_1", d)
        _move_turned(parts, f"{to}ffn.w1", f"{source}mlp.c_fc", d, inner)
        parts.move(f"{to}ffn.b1", f"{source}mlp.c_fc.bias", inner)
        _move_turned(parts, f"{to}ffn.w2", f"{source}mlp.c_proj", inner, d)
        parts.move(f"{to}ffn.b2", f"{source}mlp.c_proj.bias", d)
        parts.move_norm(f"{to}norm2", f"{source}ln_2", d)
        layers.append({"weighting": "softmax", "mask": "future"} | _scores(parts, k))
    parts.move_norm("final_norm", f"{prefix}ln_f", d)
    parts.config |= {
        "layer_norm": "pre",
        "layer_norm_epsilon": folder.get("layer_norm_epsilon", 1e-5),
        "activation": read_activation(folder, "activation_function", "gelu_new"),
        "layers": layers,
    }


def _scores(parts: Parts, layer: int) -> dict[str, object]:
    scaled = parts.folder.flag("scale_attn_weights", True)
    found: dict[str, object] = {} if scaled else {"score": "dot_product"}
    if parts.folder.flag("scale_attn_by_inverse_layer_idx", False) and layer:
        found["temperature"] = {"kind": "constant", "value": float(layer + 1)}
    return found


def _move_turned(parts: Parts, name: str, source: str, width: int, out: int) -> None:
    parts.put(name, parts.folder.take(f"{source}.weight", width, out).T)


def causal_lm(parts: Parts, prefix: str) -> None:
    """The next token's logits: the embedding as the map, or one of its own."""
    parts.config["head"] = [put_decoder(parts, 0, "lm_head.weight")]


def classifier(parts: Parts, prefix: str) -> None:
    """A map to the classes, of the row that is watched, the last by custom."""
    parts.move_readout("score", bias=False)
