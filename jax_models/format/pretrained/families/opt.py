"""OPT: decoders with learned positions, counted from 2 (Zhang et al. 2022).

`parts` collects tensors and config of the model in this package's format.
"""

from jax_models.format.pretrained.families.family import Family
from jax_models.format.pretrained.families.gpt2 import DECODER
from jax_models.format.pretrained.parts import Parts, expect_default, name_projections

LAYER = {
    **name_projections("self_attn.{1}_proj"),
    "output": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "w1": "fc1",
    "w2": "fc2",
    "norm2": "final_layer_norm",
}
OFFSET = 2  # of the position table's rows


def prepare(parts: Parts, prefix: str) -> None:
    """Adds position table, placement of norms and any final norm to the model's parts."""
    folder, d = parts.folder, parts.folder.number("hidden_size")
    expect_default(
        folder, "word_embed_proj_dim", [d], "embeddings of another width are not read"
    )
    length = folder.number("max_position_embeddings")
    table = folder.take(f"{prefix}embed_positions.weight", length + OFFSET, d)
    parts.put("position", table[OFFSET:])
    before = folder.flag("do_layer_norm_before", True)
    parts.config["layer_norm"] = "pre" if before else "post"
    if before and not folder.flag("_remove_final_layer_norm", False):
        parts.move_norm("final_norm", f"{prefix}final_layer_norm", d)


OPT = Family(
    embedding="embed_tokens.weight",
    others=("embed_positions", "final_layer_norm"),
    left_behind=(),
    heads=DECODER,
    layer=LAYER,
    keys={
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "layer_norm_eps": "",
    },
    epsilon=1e-5,
    activation="relu",
    only={
        "enable_bias": (True, "maps without biases are not read"),
        "layer_norm_elementwise_affine": (
            True,
            "norms without parameters are not read",
        ),
    },
    prepare=prepare,
)
