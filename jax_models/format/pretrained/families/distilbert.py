"""DistilBERT: BERT's layers under other names, without token types (Sanh et al. 2019)."""

from jax_models.format.pretrained.families import bert
from jax_models.format.pretrained.families.family import Family
from jax_models.format.pretrained.parts import name_projections

LAYER = {
    **name_projections("attention.{1}_lin"),
    "output": "attention.out_lin",
    "norm1": "sa_layer_norm",
    "w1": "ffn.lin1",
    "w2": "ffn.lin2",
    "norm2": "output_layer_norm",
}


DISTILBERT = Family(
    position="embeddings.position_embeddings.weight",
    decoder="vocab_projector.weight",
    heads={
        "masked_lm": bert.head_of(
            "vocab_transform", norm="vocab_layer_norm", bias="vocab_projector.bias"
        ),
        "classifier": bert.head_of("pre_classifier", "relu", "classifier"),
        "token_classifier": bert.token_classifier,
    },
    layers="transformer.layer.",
    layer=LAYER,
    norms={"entry.norm": "embeddings.LayerNorm"},
    layer_norm="post",
    keys={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "layer_norm_eps": "",  # all of its norms have one
    },
)
