"""GPT-NeoX and Pythia: decoders with rotary positions (Black et al. 2022).

These turn a part of each head's coordinates. Attention and feed-forward block both read the
layer's input, unless `use_parallel_residual` is false.
Queries, keys and values of a head stand together in one map.
"""

from jax_models.format.pretrained.parts import (
    Parts,
    expect_default,
    read_activation,
    read_sizes,
)
from jax_models.format.pretrained.rotary import rotary_of

LAYER = {
    "by_head": "attention.query_key_value.{}",
    "output": "attention.dense",
    "norm1": "input_layernorm",
    "w1": "mlp.dense_h_to_4h",
    "w2": "mlp.dense_4h_to_h",
    "norm2": "post_attention_layernorm",
}
# The mask, the score of masked positions, and the rotary frequencies.
LEFT_BEHIND = tuple(
    f"layers.#.attention.{name}"
    for name in ("bias", "masked_bias", "rotary_emb.inv_freq")
)


def put_gpt_neox(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts)
    expect_default(folder, "attention_bias", [True], "maps without biases are not read")
    parts.move("embedding", f"{prefix}embed_in.weight", vocab_size, d)
    count = parts.move_layers(f"{prefix}layers.", LAYER, heads)
    parts.move_norm("final_norm", f"{prefix}final_layer_norm", d)
    layer = {"weighting": "softmax", "mask": "future"}
    layer |= rotary_of(folder, parts.head_width, share=0.25)
    parts.config |= {
        "layer_norm": "pre",
        "layer_norm_epsilon": folder.get("layer_norm_eps", 1e-5),
        "activation": read_activation(folder, "hidden_act", "gelu"),
        "layers": [layer] * count,
    }
    if folder.flag("use_parallel_residual", True):
        parts.config["combine"] = "parallel"
