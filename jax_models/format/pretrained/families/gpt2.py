"""GPT-2: pre-norm decoders whose maps are stored (in, out) (Radford et al. 2019).

Functions add tensors and config entries of this package's format to `parts`; a map is a
weight matrix.
"""

from typing import Any

from jax_models.format.pretrained.families.bert import put_decoder
from jax_models.format.pretrained.families.family import Family, Put, plain_layers
from jax_models.format.pretrained.parts import Parts

LAYER = {
    "fused": "attn.c_attn.{}",
    "output": "attn.c_proj",
    "norm1": "ln_1",
    "w1": "mlp.c_fc",
    "w2": "mlp.c_proj",
    "norm2": "ln_2",
}


def prepare(parts: Parts, prefix: str) -> None:
    """Sets default feed-forward width and length, and that maps are stored (in, out)."""
    folder = parts.folder
    parts.turned = True
    inner, length = 4 * folder.number("hidden_size"), folder.get("n_ctx")
    more = {"intermediate_size": inner, "max_position_embeddings": length}
    folder.defaults = {**folder.defaults, **more}


def put_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds all layers' tensors; returns config entries, with score and temperature."""
    flag, entries = parts.folder.flag, plain_layers(parts, source)
    scaled = flag("scale_attn_weights", True)
    by_layer = flag("scale_attn_by_inverse_layer_idx", False)
    for k, entry in enumerate(entries):
        if not scaled:
            entry["score"] = "dot_product"
        if by_layer and k:  # scores of layer k are divided by k + 1
            entry["temperature"] = {"kind": "constant", "value": float(k + 1)}
    return entries


def causal_lm(parts: Parts, prefix: str) -> None:
    """Adds the head that predicts the next token: the embedding, or a map of its own."""
    put_decoder(parts)


def classifier(parts: Parts, prefix: str) -> None:
    """Adds the read-out `score`, a map of rows to classes without bias."""
    parts.move_readout("score", bias=False)


DECODER: dict[str, Put] = {"causal_lm": causal_lm, "classifier": classifier}
GPT2 = Family(
    embedding="wte.weight",
    position="wpe.weight",
    left_behind=("h.#.attn.bias", "h.#.attn.masked_bias"),
    heads=DECODER,
    layers="h.",
    layer=LAYER,
    norms={"final_norm": "ln_f"},
    keys={
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "hidden_act": "activation_function",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    epsilon=1e-5,
    activation="gelu_new",
    prepare=prepare,
    put_layers=put_layers,
)
