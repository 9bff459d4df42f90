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
    heads_of,
    padding_of,
    read_activation,
)


def put_bert(parts: Parts, prefix: str) -> None:
    """Holds everything but the head."""
    folder = parts.folder
    d, vocab_size = folder.number("hidden_size"), folder.number("vocab_size")
    heads, parts.head_width = heads_of(folder, d, "num_attention_heads")
    expect_default(
        folder, "position_embedding_type", ["absolute"], "positions are added"
    )
    expect_default(folder, "is_decoder", [False], "it is read as an encoder")
    expect_default(
        folder, "add_cross_attention", [False], "there is no second sequence"
    )
    narrow = folder.config["model_type"] == "electra"
    width = folder.number("embedding_size", 128) if narrow else d
    embed_positions(parts, f"{prefix}embeddings.", vocab_size, width)
    if width != d:
        source = f"{prefix}embeddings_project"
        parts.move("entry.projection", f"{source}.weight", d, width)
        parts.move("entry.projection_bias", f"{source}.bias", d)
    inner = folder.number("intermediate_size")
    for k in range(folder.number("num_hidden_layers")):
        source, to = f"{prefix}encoder.layer.{k}.", f"layers.{k}."
        for name in ("query", "key", "value"):
            whence = f"{source}attention.self.{name}"
            parts.move_heads(k, name, whence, heads, d)
        whence = f"{source}attention.output.dense"
        parts.move(f"{to}attention.output", f"{whence}.weight", d, d)
        parts.move(f"{to}attention.output_bias", f"{whence}.bias", d)
        parts.move_norm(f"{to}norm1", f"{source}attention.output.LayerNorm", d)
        parts.move(f"{to}ffn.w1", f"{source}intermediate.dense.weight", inner, d)
        parts.move(f"{to}ffn.b1", f"{source}intermediate.dense.bias", inner)
        parts.move(f"{to}ffn.w2", f"{source}output.dense.weight", d, inner)
        parts.move(f"{to}ffn.b2", f"{source}output.dense.bias", d)
        parts.move_norm(f"{to}norm2", f"{source}output.LayerNorm", d)
    parts.config |= {
        "layer_norm": "post",
        "layer_norm_epsilon": folder.get("layer_norm_eps", 1e-12),
        "activation": read_activation(folder, "hidden_act", "gelu"),
        "layers": [{"weighting": "softmax"}] * folder.number("num_hidden_layers"),
    }


def embed_positions(parts: Parts, prefix: str, vocab_size: int, width: int) -> None:
    """Holds embedding, positions and the norm behind them.

    Every token is of the first type: its row is added to every position's.
    """
    folder = parts.folder
    parts.move("embedding", f"{prefix}word_embeddings.weight", vocab_size, width)
    length = folder.number("max_position_embeddings")
    table = folder.take(f"{prefix}position_embeddings.weight", length, width)
    types = folder.number("type_vocab_size", 2)
    name = f"{prefix}token_type_embeddings.weight"
    table = table + folder.take(name, types, width)[0].astype(parts.dtype)
    if folder.config["model_type"] in COUNT_FROM_PADDING:
        padding = padding_of(folder)
        if padding is None or not 0 <= padding < length - 1:
            raise InputError(
                f"pad_token_id of {str(folder.path / 'config.json')!r} is {padding}; "
                f"expected 0 to {length - 2}: positions are counted from it, and "
                f"max_position_embeddings is {length}"
            )
        table = table[padding + 1 :]
    parts.put("position", table)
    parts.move_norm("entry.norm", f"{prefix}LayerNorm", width)


COUNT_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")


def masked_lm(parts: Parts, prefix: str) -> None:
    """BERT's head of a masked language model: dense, activation, norm, embedding."""
    put_masked_lm(
        parts,
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder.weight",
        "cls.predictions.bias",
    )


def roberta_masked_lm(parts: Parts, prefix: str) -> None:
    """RoBERTa's, the same under other names, always with gelu."""
    put_masked_lm(
        parts,
        "lm_head.dense",
        "lm_head.layer_norm",
        "lm_head.decoder.weight",
        "lm_head.bias",
        "gelu",
    )


def electra_masked_lm(parts: Parts, prefix: str) -> None:
    """That of ELECTRA's generator, gelu whatever the layers have."""
    put_masked_lm(
        parts,
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.weight",
        "generator_lm_head.bias",
        "gelu",
    )


def put_masked_lm(
    parts: Parts,
    dense: str,
    norm: str,
    decoder: str,
    bias: str,
    activation: str | None = None,
) -> None:
    """Holds dense, activation, norm and decoder, the embedding where they are tied.

    Args:
        parts: of the model.
        dense: the name of the first map.
        norm: of the norm.
        decoder: of the last map's weight; absent where it is the embedding.
        bias: of the last map, which may have one under the decoder's name too: the same
            where the decoder is the embedding, the one that counts where it is not.
        activation: between them; by default that of the layers.
    """
    folder = parts.folder
    vocab_size, narrow = parts.tensors["embedding"].shape
    parts.move_affine("head.0", dense, narrow, parts.width)
    parts.move_norm("head.2", norm, narrow)
    last = put_decoder(parts, 3, decoder)
    own = f"{decoder.removesuffix('.weight')}.bias"
    if folder.flag("tie_word_embeddings", True):
        bias = folder.same(bias, own)
    elif own in folder:
        bias = own
    parts.move("head.3.bias", bias, vocab_size)
    epsilon = parts.config["layer_norm_epsilon"]
    parts.config["head"] = [
        "linear",
        activation or parts.config["activation"],
        {"norm": "layer_norm", "epsilon": epsilon},
        last,
    ]


def put_decoder(parts: Parts, at: int, name: str, tied: bool = True) -> str:
    """Holds the weight of a head's last map; returns the word of its operation.

    A decoder that is stored is the embedding again where the two are tied.

    Args:
        parts: of the model.
        at: which operation of the head it is.
        name: of the folder's tensor.
        tied: whether the two are one where the configuration says nothing.
    """
    folder, embedding = parts.folder, parts.tensors["embedding"]
    if folder.flag("tie_word_embeddings", tied):
        stored = folder.take(name, *embedding.shape) if name in folder else None
        if stored is not None and not np.array_equal(
            stored.astype(parts.dtype, copy=False), embedding
        ):
            raise InputError(
                f"tie_word_embeddings of {str(folder.path / 'config.json')!r} is true, "
                f"and tensor {name!r} differs from the embedding; say false, or leave "
                "the tensor out"
            )
        return "embedding"
    parts.move(f"head.{at}.weight", name, *embedding.shape)
    return "linear"


def pooler(parts: Parts, prefix: str) -> None:
    """Dense and tanh of the row that is watched, the first by custom."""
    d = parts.width
    parts.move_affine("head.0", f"{prefix}pooler.dense", d, d)
    parts.config["head"] = ["linear", "tanh"]


def discriminator(parts: Parts, prefix: str) -> None:
    """ELECTRA's discriminator: one number of every row, of a symbol put in its place."""
    d, source = parts.width, "discriminator_predictions.dense"
    parts.move_affine("head.0", source, d, d)
    parts.move_affine("head.2", f"{source}_prediction", 1, d)
    parts.config["head"] = ["linear", parts.config["activation"], "linear"]


def classifier(parts: Parts, prefix: str) -> None:
    """BERT's classifier: the pooler and a map to the classes."""
    pooler(parts, prefix)
    classes = parts.folder.rows("classifier.weight")
    parts.move_affine("head.2", "classifier", classes, parts.width)
    parts.config["head"] += ["linear"]


def two_maps(activation: str) -> Callable[[Parts, str], None]:
    """A classifier of two maps: RoBERTa's with tanh, ELECTRA's with gelu."""

    def put(parts: Parts, prefix: str) -> None:
        d = parts.width
        parts.move_affine("head.0", "classifier.dense", d, d)
        classes = parts.folder.rows("classifier.out_proj.weight")
        parts.move_affine("head.2", "classifier.out_proj", classes, d)
        parts.config["head"] = ["linear", activation, "linear"]

    return put


def token_classifier(parts: Parts, prefix: str) -> None:
    """A map of every row to the classes."""
    parts.move_readout("classifier")
