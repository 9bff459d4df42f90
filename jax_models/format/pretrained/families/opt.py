"""OPT: decoders with learned positions, counted from 2 (Zhang et al. 2022)."""

from jax_models.format.pretrained.parts import (
    Parts,
    expect_default,
    read_activation,
    read_sizes,
)

LAYER = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "w1": "fc1",
    "w2": "fc2",
    "norm2": "final_layer_norm",
}
OFFSET = 2  # of the position table's rows


def put_opt(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts)
    expect_default(
        folder, "word_embed_proj_dim", [d], "embeddings of another width are not read"
    )
    for key, why in (
        ("enable_bias", "maps without biases are not read"),
        ("layer_norm_elementwise_affine", "norms without parameters are not read"),
    ):
        expect_default(folder, key, [True], why)
    length = folder.number("max_position_embeddings")
    parts.move("embedding", f"{prefix}embed_tokens.weight", vocab_size, d)
    table = folder.take(f"{prefix}embed_positions.weight", length + OFFSET, d)
    parts.put("position", table[OFFSET:])
    count = parts.move_layers(f"{prefix}layers.", LAYER, heads, "ffn_dim")
    before = folder.flag("do_layer_norm_before", True)
    if before and not folder.flag("_remove_final_layer_norm", False):
        parts.move_norm("final_norm", f"{prefix}final_layer_norm", d)
    parts.config |= {
        "layer_norm": "pre" if before else "post",
        "activation": read_activation(folder, "activation_function", "relu"),
        "layers": [{"weighting": "softmax", "mask": "future"}] * count,
    }
