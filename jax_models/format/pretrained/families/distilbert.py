"""DistilBERT: BERT's layers under other names, without token types (Sanh et al. 2019)."""

from jax_models.format.pretrained.families.bert import put_masked_lm
from jax_models.format.pretrained.parts import Parts, heads_of, read_activation

EPSILON = 1e-12  # of all its norms


def put_distilbert(parts: Parts, prefix: str) -> None:
    """Holds everything but the head."""
    folder = parts.folder
    d, vocab_size = folder.number("dim"), folder.number("vocab_size")
    heads, parts.head_width = heads_of(folder, d, "n_heads")
    source = f"{prefix}embeddings."
    parts.move("embedding", f"{source}word_embeddings.weight", vocab_size, d)
    length = folder.number("max_position_embeddings")
    parts.move("position", f"{source}position_embeddings.weight", length, d)
    parts.move_norm("entry.norm", f"{source}LayerNorm", d)
    inner = folder.number("hidden_dim")
    for k in range(folder.number("n_layers")):
        source, to = f"{prefix}transformer.layer.{k}.", f"layers.{k}."
        for name in ("query", "key", "value"):
            parts.move_heads(k, name, f"{source}attention.{name[0]}_lin", heads, d)
        whence = f"{source}attention.out_lin"
        parts.move(f"{to}attention.output", f"{whence}.weight", d, d)
        parts.move(f"{to}attention.output_bias", f"{whence}.bias", d)
        parts.move_norm(f"{to}norm1", f"{source}sa_layer_norm", d)
        parts.move(f"{to}ffn.w1", f"{source}ffn.lin1.weight", inner, d)
        parts.move(f"{to}ffn.b1", f"{source}ffn.lin1.bias", inner)
        parts.move(f"{to}ffn.w2", f"{source}ffn.lin2.weight", d, inner)
        parts.move(f"{to}ffn.b2", f"{source}ffn.lin2.bias", d)
        parts.move_norm(f"{to}norm2", f"{source}output_layer_norm", d)
    parts.config |= {
        "layer_norm": "post",
        "layer_norm_epsilon": EPSILON,
        "activation": read_activation(folder, "activation", "gelu"),
        "layers": [{"weighting": "softmax"}] * folder.number("n_layers"),
    }


def masked_lm(parts: Parts, prefix: str) -> None:
    """Dense, activation, norm, embedding."""
    names = ("vocab_transform", "vocab_layer_norm", "vocab_projector.weight")
    put_masked_lm(parts, *names, "vocab_projector.bias")


def classifier(parts: Parts, prefix: str) -> None:
    """Dense, ReLU and a map to the classes, of the row that is watched."""
    folder, d = parts.folder, parts.width
    parts.move_affine("head.0", "pre_classifier", d, d)
    parts.move_affine("head.2", "classifier", folder.rows("classifier.weight"), d)
    parts.config["head"] = ["linear", "relu", "linear"]


def token_classifier(parts: Parts, prefix: str) -> None:
    """A map of every row to the classes."""
    parts.move_readout("classifier")
