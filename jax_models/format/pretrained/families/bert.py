"""BERT, RoBERTa and ELECTRA: encoders with a norm behind the embedding and post-norm layers.

Devlin et al. 2019; Liu et al. 2019; Clark et al. 2020. They share all names but those of
their heads. RoBERTa counts positions from the padding's number + 1; ELECTRA's embedding may
be narrow, and is then projected behind its norm. Functions add tensors and config entries
of this package's format to `parts`; a map is a weight matrix with or without bias.
"""

import functools

import numpy as np
from jaxtyping import Float

from jax_models.errors import InputError
from jax_models.format.pretrained.families.family import Family, Put
from jax_models.format.pretrained.parts import Parts, name_projections, padding_of

LAYER = {
    **name_projections("attention.self.{0}"),
    "output": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "w1": "intermediate.dense",
    "w2": "output.dense",
    "norm2": "output.LayerNorm",
}


def prepare(parts: Parts, prefix: str) -> None:
    """Adds the position table plus token type 0, and a narrow embedding's projection."""
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


def head_of(
    # names of maps and a norm in the source, where {} stands for the base model's prefix
    dense: str,
    # by default the layers'
    activation: str = "",
    # the map that ends the head, if there is one
    last: str = "",
    *,
    norm: str = "",
    # of the decoder, which ends the head if it is named
    bias: str = "",
) -> Put:
    """Returns a function that adds a head: map, activation, then decoder or class map."""

    def put(parts: Parts, prefix: str) -> None:
        begin_head(parts, dense.format(prefix), activation, norm)
        if bias:
            put_decoder(parts, bias)
        elif last:
            put_outputs(parts, last)

    return put


def begin_head(
    parts: Parts,
    dense: str,
    activation: str = "",
    norm: str = "",
    # whether the map, and the norm, have biases
    biases: tuple[bool, bool] = (True, True),
) -> None:
    """Adds the first steps of a head: a map, an activation and, if named, a norm."""
    # Rows that are normed are of the embedding's width, which the decoder reads.
    width = parts.tensors["embedding"].shape[1] if norm else parts.width
    parts.move_affine("head.0", dense, width, parts.width, biases[0])
    head = ["linear", activation or parts.config["activation"]]
    if norm:
        parts.move_norm("head.2", norm, width, biases[1])
        epsilon = parts.config["layer_norm_epsilon"]
        head.append({"norm": "layer_norm", "epsilon": epsilon})
    parts.config["head"] = head


def put_outputs(parts: Parts, source: str) -> None:
    """Ends a head with the map `source` of a checkpoint, to its number of logits."""
    head, out = parts.config["head"], parts.folder.rows(f"{source}.weight")
    parts.move_affine(f"head.{len(head)}", source, out, parts.width)
    head.append("linear")


def put_decoder(parts: Parts, bias: str | None = None) -> None:
    """Ends a head with the map to symbols (decoder), or the embedding if tied."""
    folder, name, embedding = parts.folder, parts.decoder, parts.tensors["embedding"]
    head = parts.config.setdefault("head", [])
    to, where = f"head.{len(head)}", folder.where("tie_word_embeddings")
    if parts.tied and name in folder:
        stored = folder.take(name, *embedding.shape).astype(parts.dtype, copy=False)
        if not np.array_equal(stored, embedding):
            raise InputError(
                f"{where} is true, and tensor {name!r} "
                "differs from the embedding; say false, or leave the tensor out"
            )
    elif not parts.tied and name not in folder:
        raise InputError(
            f"{where} is false, and {folder.called} has the embedding alone, no tensor "
            f"{name!r}; say true if the embedding is the decoder too"
        )
    elif not parts.tied:
        parts.move(f"{to}.weight", name, *embedding.shape)
    if bias is not None:
        # A bias under the decoder's name must be equal if the decoder is the embedding;
        # else it is used instead.
        own = f"{name.removesuffix('.weight')}.bias"
        named = folder.same(bias, own) if parts.tied else own if own in folder else bias
        parts.move(f"{to}.bias", named, embedding.shape[0])
    head.append("embedding" if parts.tied else "linear")


def token_classifier(parts: Parts, prefix: str) -> None:
    """Adds a read-out that maps every row to the classes."""
    parts.move_readout("classifier")


HEADS: dict[str, Put] = {
    "masked_lm": head_of(
        "cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        bias="cls.predictions.bias",
    ),
    "pooler": head_of("{}pooler.dense", "tanh"),
    "classifier": head_of("{}pooler.dense", "tanh", "classifier"),
    "token_classifier": token_classifier,
}
# RoBERTa's, ESM-2's and ELECTRA's masked LM heads have gelu whatever the layers have.
ROBERTA_HEADS: dict[str, Put] = HEADS | {
    "masked_lm": head_of(
        "lm_head.dense", "gelu", norm="lm_head.layer_norm", bias="lm_head.bias"
    ),
    "classifier": head_of("classifier.dense", "tanh", "classifier.out_proj"),
}
ELECTRA_HEADS: dict[str, Put] = {
    "masked_lm": head_of(
        "generator_predictions.dense",
        "gelu",
        norm="generator_predictions.LayerNorm",
        bias="generator_lm_head.bias",
    ),
    # Of each row the logit that its symbol was replaced.
    "discriminator": head_of(
        "discriminator_predictions.dense",
        last="discriminator_predictions.dense_prediction",
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
