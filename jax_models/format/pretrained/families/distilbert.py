"""DistilBERT: BERT's layers under other names, without token types (Sanh et al. 2019)."""

from jax_models.format.pretrained.families.bert import masked_lm_of
from jax_models.format.pretrained.parts import Parts, read_activation, read_sizes

EPSILON = 1e-12  # of all its norms
LAYER = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "output": "attention.out_lin",
    "norm1": "sa_layer_norm",
    "w1": "ffn.lin1",
    "w2": "ffn.lin2",
    "norm2": "output_layer_norm",
}


def put_distilbert(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts, "dim", "n_heads")
    source = f"{prefix}embeddings."
    parts.move("embedding", f"{source}word_embeddings.weight", vocab_size, d)
    length = folder.number("max_position_embeddings")
    parts.move("position", f"{source}position_embeddings.weight", length, d)
    parts.move_norm("entry.norm", f"{source}LayerNorm", d)
    sizes = "hidden_dim", "n_layers"
    count = parts.move_layers(f"{prefix}transformer.layer.", LAYER, heads, *sizes)
    parts.config |= {
        "layer_norm": "post",
        "layer_norm_epsilon": EPSILON,
        "activation": read_activation(folder, "activation", "gelu"),
        "layers": [{"weighting": "softmax"}] * count,
    }


masked_lm = masked_lm_of(
    "vocab_transform",
    "vocab_layer_norm",
    "vocab_projector.bias",
)
