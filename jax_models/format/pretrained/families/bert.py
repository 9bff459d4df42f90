"""BERT, RoBERTa and ELECTRA: encoders with a norm behind the embedding and post-norm layers.

Devlin et al. 2019; Liu et al. 2019; Clark et al. 2020. They share all names but those of
their heads. RoBERTa counts positions from the padding's number + 1; ELECTRA's embedding may
be narrow, and is then projected behind its norm.
"""

from collections.abc import Callable

import numpy as np

from jax_models.errors import InputError
from jax_models.format.pretrained.parts import (
    Parts,
    expect_default,
    padding_of,
    read_activation,
    read_sizes,
)

LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "w1": "intermediate.dense",
    "w2": "output.dense",
    "norm2": "output.LayerNorm",
}


def put_bert(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts)
    narrow = folder.config["model_type"] == "electra"
    width = folder.number("embedding_size", 128) if narrow else d
    embed(parts, prefix, vocab_size, width)
    if width != d:
        project(parts, f"{prefix}embeddings_project", d, width)
    count = parts.move_layers(f"{prefix}encoder.layer.", LAYER, heads)
    parts.config |= {
        "layer_norm": "post",
        "layer_norm_epsilon": folder.get("layer_norm_eps", 1e-12),
        "activation": read_activation(folder, "hidden_act", "gelu"),
        "layers": [{"weighting": "softmax"}] * count,
    }


def project(parts: Parts, source: str, d: int, width: int) -> None:
    """Adds the map `source` from a narrow embedding to the model's width."""
    parts.move("entry.projection", f"{source}.weight", d, width)
    parts.move("entry.projection_bias", f"{source}.bias", d)


def embed(parts: Parts, prefix: str, vocab_size: int, width: int) -> None:
    """Adds embedding, positions with the first token type, and the norm after them."""
    folder, prefix = parts.folder, f"{prefix}embeddings."
    expect_default(
        folder, "position_embedding_type", ["absolute"], "positions are added"
    )
    parts.move("embedding", f"{prefix}word_embeddings.weight", vocab_size, width)
    table = take_positions(parts, prefix, width)
    types = folder.number("type_vocab_size", 2)
    name = f"{prefix}token_type_embeddings.weight"
    rows = folder.take(name, types, width).astype(parts.dtype)
    # Models whose positions count from the padding use the first type for both texts of a
    # pair.
    if types > 1 and folder.config["model_type"] not in COUNT_FROM_PADDING:
        parts.second = rows[1] - rows[0]
    parts.put("position", table + rows[0])
    parts.move_norm("entry.norm", f"{prefix}LayerNorm", width)


COUNT_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "esm")


def take_positions(parts: Parts, prefix: str, width: int) -> np.ndarray:
    """Returns the position table from the row of a text's first token on."""
    folder = parts.folder
    length = folder.number("max_position_embeddings")
    table = folder.take(f"{prefix}position_embeddings.weight", length, width)
    if folder.config["model_type"] not in COUNT_FROM_PADDING:
        return table
    padding = padding_of(folder)
    if padding is None or not 0 <= padding < length - 1:
        raise InputError(
            f"{folder.where('pad_token_id')} is {padding}; expected 0 to "
            f"{length - 2}: positions are counted from it, and "
            f"max_position_embeddings is {length}"
        )
    return table[padding + 1 :]


def masked_lm_of(
    dense: str,
    norm: str,
    # name of the last map's bias. A bias under the decoder's name must be equal if the
    # decoder is the embedding; else it is used instead
    bias: str,
    # by default the layers' activation
    activation: str | None = None,
) -> Callable[[Parts, str], None]:
    """Returns a function that adds a masked LM head: dense, activation, norm, decoder."""

    def put(parts: Parts, prefix: str) -> None:
        folder = parts.folder
        vocab_size, narrow = parts.tensors["embedding"].shape
        parts.move_affine("head.0", dense, narrow, parts.width)
        parts.move_norm("head.2", norm, narrow)
        last = put_decoder(parts, 3)
        own = f"{parts.decoder.removesuffix('.weight')}.bias"
        named = folder.same(bias, own) if parts.tied else own if own in folder else bias
        parts.move("head.3.bias", named, vocab_size)
        epsilon = parts.config["layer_norm_epsilon"]
        parts.config["head"] = [
            "linear",
            activation or parts.config["activation"],
            {"norm": "layer_norm", "epsilon": epsilon},
            last,
        ]

    return put


masked_lm = masked_lm_of(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
)
# RoBERTa's, ESM-2's and ELECTRA's have gelu whatever the layers have.
roberta_masked_lm = masked_lm_of(
    "lm_head.dense",
    "lm_head.layer_norm",
    "lm_head.bias",
    "gelu",
)
electra_masked_lm = masked_lm_of(
    "generator_predictions.dense",
    "generator_predictions.LayerNorm",
    "generator_lm_head.bias",
    "gelu",
)


def put_decoder(parts: Parts, at: int) -> str:
    """Adds the decoder as step `at` of a head; returns "linear", or "embedding" if tied."""
    folder, name, embedding = parts.folder, parts.decoder, parts.tensors["embedding"]
    where = folder.where("tie_word_embeddings")
    if parts.tied:
        stored = folder.take(name, *embedding.shape) if name in folder else None
        if stored is not None and not np.array_equal(
            stored.astype(parts.dtype, copy=False), embedding
        ):
            raise InputError(
                f"{where} is true, and tensor {name!r} "
                "differs from the embedding; say false, or leave the tensor out"
            )
        return "embedding"
    if name not in folder:
        raise InputError(
            f"{where} is false, and {folder.called} has the embedding alone, no tensor "
            f"{name!r}; say true if the embedding is the decoder too"
        )
    parts.move(f"head.{at}.weight", name, *embedding.shape)
    return "linear"


def head_of(
    # in turn names of maps in the source, where {} stands for the base model's prefix, and
    # of activations, where "" stands for the layers'
    *steps: str,
    # of a map that ends the head; None: as many as it has in the source
    outputs: int | None = None,
) -> Callable[[Parts, str], None]:
    """Returns a function that adds a head of affine maps, of the model's width within it."""

    def put(parts: Parts, prefix: str) -> None:
        d, head = parts.width, []
        for at, step in enumerate(steps):
            if at % 2:
                head.append(step or parts.config["activation"])
                continue
            source, out = step.format(prefix), d
            if at == len(steps) - 1:
                out = outputs or parts.folder.rows(f"{source}.weight")
            parts.move_affine(f"head.{at}", source, out, d)
            head.append("linear")
        parts.config["head"] = head

    return put


pooler = head_of("{}pooler.dense", "tanh")
classifier = head_of("{}pooler.dense", "tanh", "classifier")
# ELECTRA's logit of each row that its symbol was replaced.
discriminator = head_of(
    "discriminator_predictions.dense",
    "",
    "discriminator_predictions.dense_prediction",
    outputs=1,
)


def token_classifier(parts: Parts, prefix: str) -> None:
    """Adds a map of every row to the classes."""
    parts.move_readout("classifier")
