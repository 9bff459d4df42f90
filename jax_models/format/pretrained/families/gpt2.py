"""GPT-2: pre-norm decoders whose maps are stored (in, out) (Radford et al. 2019)."""

from jax_models.format.pretrained.families.bert import put_decoder
from jax_models.format.pretrained.parts import (
    Parts,
    read_activation,
    read_sizes,
)

LAYER = {
    "fused": "attn.c_attn.{}",
    "output": "attn.c_proj",
    "norm1": "ln_1",
    "w1": "mlp.c_fc",
    "w2": "mlp.c_proj",
    "norm2": "ln_2",
}
# The mask, and the score of masked positions.
LEFT_BEHIND = ("h.#.attn.bias", "h.#.attn.masked_bias")


def put_gpt2(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts, "n_embd", "n_head")
    parts.turned = True
    inner = folder.number("n_inner", 4 * d)
    length = folder.number("n_positions", folder.get("n_ctx"))
    parts.move("embedding", f"{prefix}wte.weight", vocab_size, d)
    parts.move("position", f"{prefix}wpe.weight", length, d)
    layers = []
    for k in range(folder.number("n_layer")):
        parts.move_layer(k, f"{prefix}h.{k}.", LAYER, heads, inner)
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
    # Scores of layer k are divided by k + 1.
    if parts.folder.flag("scale_attn_by_inverse_layer_idx", False) and layer:
        found["temperature"] = {"kind": "constant", "value": float(layer + 1)}
    return found


def causal_lm(parts: Parts, prefix: str) -> None:
    """Adds the head that predicts the next token: the embedding, or a map of its own."""
    parts.config["head"] = [put_decoder(parts, 0)]


def classifier(parts: Parts, prefix: str) -> None:
    """Adds a map to the classes, without bias."""
    parts.move_readout("score", bias=False)
