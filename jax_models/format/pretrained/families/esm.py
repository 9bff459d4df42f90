"""ESM: pre-norm encoders with rotary positions (ESM-2, Lin et al. 2023) or a table of them.

ESM-1b, ESM-1v (Rives et al. 2021; Meier et al. 2021) and the Nucleotide Transformer
(Dalla-Torre et al. 2024) have tables, counted from the padding's number + 1. Trained with
`token_dropout`, embeddings are scaled by 0.88 / (1 - share of `<mask>`), and
rows of `<mask>` are zero. Functions add tensors and config entries of this package's format
to `parts`.
"""

from typing import Any

import numpy as np

from jax_models.arguments import choose_name, expect_number
from jax_models.format.pretrained.families import bert
from jax_models.format.pretrained.families.family import Family, plain_layers
from jax_models.format.pretrained.parts import Parts

MASKED_IN_TRAINING = 0.15 * 0.8
LAYER = bert.LAYER | {"norm1": "attention.LayerNorm", "norm2": "LayerNorm"}


def prepare(parts: Parts, prefix: str) -> None:
    """Adds the position table, the norm after it and token dropout, each if present."""
    folder, d = parts.folder, parts.folder.number("hidden_size")
    source = f"{prefix}embeddings."
    if not _is_rotary(parts):
        parts.put("position", bert.take_positions(parts, source, d))
    if folder.flag("emb_layer_norm_before", False):
        parts.move_norm("entry.norm", f"{source}layer_norm", d)
    if folder.flag("token_dropout", False):
        mask, share = folder.get("mask_token_id"), MASKED_IN_TRAINING
        parts.config["token_dropout"] = {"mask": mask, "share": share}


def _is_rotary(parts: Parts) -> bool:
    folder, where = parts.folder, "position_embedding_type"
    kind = folder.get(where, "absolute")
    return choose_name(folder.where(where), kind, ("absolute", "rotary")) == "rotary"


def put_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds all layers' tensors, rotary if without a table; returns their config entries."""
    if _is_rotary(parts):
        parts.config["rotary"] = _rotary(parts)
    return plain_layers(parts, source)


def _rotary(parts: Parts) -> dict[str, Any]:
    """Returns the config value `rotary`, with stored frequencies if not those of theta."""
    folder, dims = parts.folder, parts.head_width
    theta = folder.get("rope_theta", 10000.0)
    entry: dict[str, Any] = {"dims": dims, "theta": theta}
    listed = sorted(x for x in folder.left if x.endswith("rotary_embeddings.inv_freq"))
    if listed:
        # The package transformers uses stored frequencies, which half precision may have
        # rounded. The shortest name is the model's own, without a layer.
        stored = folder.take(min(listed, key=len), dims // 2).astype(np.float64)
        expected = expect_number("rope_theta", theta, 0, above=True) ** (
            -np.arange(0, dims, 2) / dims
        )
        if not np.allclose(stored, expected, rtol=1e-6, atol=0):
            entry["scaling"] = {"kind": "listed", "frequencies": stored.tolist()}
    return entry


ESM = Family(
    decoder="lm_head.decoder.weight",
    heads=bert.ROBERTA_HEADS,
    layers="encoder.layer.",
    others=("contact_head",),
    # Where positions are rotary, files have a table all the same.
    left_behind=(
        *Family.left_behind,
        "embeddings.position_embeddings.weight",
        "encoder.layer.#.attention.self.rotary_embeddings.inv_freq",
        "rotary_embeddings.inv_freq",
        "contact_head.regression.weight",
        "contact_head.regression.bias",
    ),
    layer=LAYER,
    norms={"final_norm": "encoder.emb_layer_norm_after"},
    keys={"hidden_act": ""},  # gelu whatever it says
    only={"is_folding_model": (False, "the language model alone is read")},
    prepare=prepare,
    put_layers=put_layers,
)
