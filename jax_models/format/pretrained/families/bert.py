"""BERT, RoBERTa and ELECTRA: encoders with a norm behind the embedding and post-norm layers.

Devlin et al. 2019; Liu et al. 2019; Clark et al. 2020. They share all names but those of
their heads. RoBERTa counts positions from the padding's number + 1; ELECTRA's embedding may
be narrow, and is then projected behind its norm.
"""

import functools

import numpy as np
from jaxtyping import Float

from jax_models.errors import InputError
from jax_models.format.pretrained.families.family import Family, Put
from jax_models.format.pretrained.parts import Parts, padding_of

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


def prepare(parts: Parts, prefix: str) -> None:
    """Adds positions with the first token type, and the map of a narrow embedding."""
    folder = parts.folder
    kind, d = folder.config["model_type"], folder.number("hidden_size")
    width = parts.tensors["embedding"].shape[1]
    if kind == "albert" or width != d:
        source = f"{prefix}{PROJECTIONS[kind]}"
        parts.move("entry.projection", f"{source}.weight", d, width)
        parts.move("entry.projection_bias", f"{source}.bias", d)
    table = take_positions(parts, f"{prefix}embeddings.", width)
    types = folder.number("type_vocab_size", 2)
    name = f"{prefix}embeddings.token_type_embeddings.weight"
    rows = folder.take(name, types, width).astype(parts.dtype)
    # Models whose positions count from the padding use the first type for both texts of a
    # pair.
    if types > 1 and kind not in COUNT_FROM_PADDING:
        parts.second = rows[1] - rows[0]
    parts.put("position", table + rows[0])


# The map from a narrow embedding to the model's width, by model type.
PROJECTIONS = {
    "electra": "embeddings_project",
    "albert": "encoder.embedding_hidden_mapping_in",
}
COUNT_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "esm")


def take_positions(
    parts: Parts, prefix: str, width: int
) -> Float[np.ndarray, "tokens width"]:
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
) -> Put:
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
) -> Put:
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


def token_classifier(parts: Parts, prefix: str) -> None:
    """Adds a map of every row to the classes."""
    parts.move_readout("classifier")


HEADS: dict[str, Put] = {
    "masked_lm": masked_lm_of(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    "pooler": head_of("{}pooler.dense", "tanh"),
    "classifier": head_of("{}pooler.dense", "tanh", "classifier"),
    "token_classifier": token_classifier,
}
# RoBERTa's, ESM-2's and ELECTRA's masked LM heads have gelu whatever the layers have.
ROBERTA_HEADS: dict[str, Put] = HEADS | {
    "masked_lm": masked_lm_of(
        "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "gelu"
    ),
    "classifier": head_of("classifier.dense", "tanh", "classifier.out_proj"),
}
ELECTRA_HEADS: dict[str, Put] = {
    "masked_lm": masked_lm_of(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
        "gelu",
    ),
    # Of each row the logit that its symbol was replaced.
    "discriminator": head_of(
        "discriminator_predictions.dense",
        "",
        "discriminator_predictions.dense_prediction",
        outputs=1,
    ),
    "classifier": head_of("classifier.dense", "gelu", "classifier.out_proj"),
    "token_classifier": token_classifier,
}
# What encoders that share BERT's names differ in is said behind it.
bert_like = functools.partial(
    Family,
    layers="encoder.layer.",
    layer=LAYER,
    norms={"entry.norm": "embeddings.LayerNorm"},
    layer_norm="post",
    only={"position_embedding_type": ("absolute", "positions are added")},
    prepare=prepare,
)
BERT = bert_like(heads=HEADS, decoder="cls.predictions.decoder.weight")
ROBERTA = bert_like(heads=ROBERTA_HEADS, decoder="lm_head.decoder.weight")
ELECTRA = bert_like(
    heads=ELECTRA_HEADS,
    decoder="generator_lm_head.weight",
    narrow=True,
    others=("embeddings_project",),
)
