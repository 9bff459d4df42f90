"""GPT-NeoX and Pythia: decoders with rotary positions (Black et al. 2022).

These turn a part of each head's coordinates. Attention and feed-forward block both read the
layer's input, unless `use_parallel_residual` is false.
Queries, keys and values of a head stand together in one map, a weight matrix.
"""

from typing import Any

from jax_models.format.pretrained.families.family import Family, plain_layers
from jax_models.format.pretrained.families.gpt2 import DECODER
from jax_models.format.pretrained.parts import Parts
from jax_models.format.pretrained.rotary import rotary_of

LAYER = {
    "by_head": "attention.query_key_value.{}",
    "output": "attention.dense",
    "norm1": "input_layernorm",
    "w1": "mlp.dense_h_to_4h",
    "w2": "mlp.dense_4h_to_h",
    "norm2": "post_attention_layernorm",
}


def put_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds all layers' tensors to `parts`; returns config entries, rotary included."""
    folder = parts.folder
    if folder.flag("use_parallel_residual", True):
        parts.config["combine"] = "parallel"
    rotary = rotary_of(folder, parts.head_width, share=0.25)
    return [rotary] * len(plain_layers(parts, source))


GPT_NEOX = Family(
    embedding="embed_in.weight",
    left_behind=tuple(
        f"layers.#.attention.{name}"
        for name in ("bias", "masked_bias", "rotary_emb.inv_freq")
    ),
    decoder="embed_out.weight",
    heads=DECODER,
    layer=LAYER,
    norms={"final_norm": "final_layer_norm"},
    epsilon=1e-5,
    only={"attention_bias": (True, "maps without biases are not read")},
    put_layers=put_layers,
    tied=False,
)
