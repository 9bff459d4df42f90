"""ModernBERT: pre-norm encoders with rotary positions and gated blocks (Warner et al. 2024).

Layers of full attention and of a sliding window turn by different frequencies. The first
layer has no norm before its attention: one stands behind the embedding. Functions add
tensors and config entries of this package's format to `parts`; a map is a weight matrix.
"""

from typing import Any

from jax_models.arguments import expect_integer
from jax_models.errors import InputError
from jax_models.format.pretrained.families.bert import (
    begin_head,
    put_decoder,
    put_outputs,
)
from jax_models.format.pretrained.families.family import Family
from jax_models.format.pretrained.parts import (
    Parts,
    Source,
    expect_default,
    read_activation,
    read_layer_types,
)
from jax_models.format.pretrained.rotary import rotary_of

LAYER = {
    "fused": "attn.Wqkv",
    "output": "attn.Wo",
    "gated": "mlp.Wi",
    "w2": "mlp.Wo",
    "norm1": "attn_norm",
    "norm2": "mlp_norm",
}
# By a layer's type: the older name of its theta, and its default.
THETA = {
    "full_attention": ("global_rope_theta", 160_000.0),
    "sliding_attention": ("local_rope_theta", 10_000.0),
}


def prepare(parts: Parts, prefix: str) -> None:
    """Sets biases: none for maps, of norms where the configuration says so."""
    has_bias = parts.folder.flag("norm_bias", False)
    parts.biases = ("norm1", "norm2") if has_bias else ()


def put_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds all layers' tensors, the first without `norm1`; returns their entries."""
    folder = parts.folder
    count = folder.number("num_hidden_layers")
    every = folder.number("global_attn_every_n_layers", 3)
    default = [list(THETA)[bool(k % every)] for k in range(count)]
    types = read_layer_types(folder, default, tuple(THETA))
    for k in range(count):
        parts.names = {x: name for x, name in LAYER.items() if k or x != "norm1"}
        parts.move_layer(k, f"{source}{k}.")
    kinds = {kind: _attention(folder, kind, parts.head_width) for kind in set(types)}
    first, *others = (kinds[kind] for kind in types)
    return [first | {"norm1": False}, *others]


def _attention(folder: Source, kind: str, width: int) -> dict[str, Any]:
    """Returns the config keys `rotary` and `window` of layers of type `kind`."""
    older, theta = THETA[kind]
    if older in folder.config and folder.config[older] is None:
        # Versions of transformers differ in the frequencies that it stands for.
        raise InputError(f"{folder.where(older)} is null; expected a number")
    settings = rotary_of(folder, width, None, kind, older, theta)
    if kind == "full_attention":
        return settings
    whole = expect_integer(
        folder.where("local_attention"), folder.get("local_attention", 128), 0
    )
    return settings | {"window": whole // 2 + 1}


def masked_lm(parts: Parts, prefix: str) -> None:
    """Adds the masked LM head: dense, activation, norm and the decoder."""
    _begin_head(parts)
    has_bias = parts.folder.flag("decoder_bias", True)
    put_decoder(parts, "decoder.bias" if has_bias else None)


def classifier(parts: Parts, prefix: str) -> None:
    """Adds the first row's classifier: dense, activation, norm and a map to the classes."""
    expect_default(
        parts.folder, "classifier_pooling", ["cls"], "a classifier reads the first row"
    )
    token_classifier(parts, prefix)


def token_classifier(parts: Parts, prefix: str) -> None:
    """Adds every row's classifier: dense, activation, norm and a map to the classes."""
    _begin_head(parts)
    put_outputs(parts, "classifier")


def _begin_head(parts: Parts) -> None:
    folder = parts.folder
    activation = read_activation(folder, "classifier_activation", "gelu")
    biases = folder.flag("classifier_bias", False), folder.flag("norm_bias", False)
    begin_head(parts, "head.dense", activation, "head.norm", biases=biases)


MODERNBERT = Family(
    embedding="embeddings.tok_embeddings.weight",
    decoder="decoder.weight",
    heads={
        "masked_lm": masked_lm,
        "classifier": classifier,
        "token_classifier": token_classifier,
    },
    layer=LAYER,
    norms={"entry.norm": "embeddings.norm", "final_norm": "final_norm"},
    keys={"layer_norm_eps": "norm_eps", "hidden_act": "hidden_activation"},
    epsilon=1e-5,
    only=dict.fromkeys(
        ("attention_bias", "mlp_bias"), (False, "its maps are read without biases")
    ),
    prepare=prepare,
    put_layers=put_layers,
)
