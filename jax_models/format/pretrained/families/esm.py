"""ESM: pre-norm encoders with rotary positions (ESM-2, Lin et al. 2023) or a table of them.

ESM-1b, ESM-1v (Rives et al. 2021; Meier et al. 2021) and the Nucleotide Transformer
(Dalla-Torre et al. 2024) have tables, counted from the padding's number + 1. Trained with
`token_dropout`, embeddings are scaled by 0.88 / (1 - share of `<mask>`), and
rows of `<mask>` are zero.
"""

from typing import Any

import numpy as np

from jax_models.arguments import choose_name, expect_number
from jax_models.format.pretrained.families import bert
from jax_models.format.pretrained.parts import Parts, expect_default, read_sizes

MASKED_IN_TRAINING = 0.15 * 0.8
LAYER = bert.LAYER | {"norm1": "attention.LayerNorm", "norm2": "LayerNorm"}


def put_esm(parts: Parts, prefix: str) -> None:
    """Adds a checkpoint's config and tensors, except its output head's, to `parts`."""
    folder, (d, vocab_size, heads) = parts.folder, read_sizes(parts)
    where, kind = "position_embedding_type", "absolute"
    kind = choose_name(folder.where(where), folder.get(where, kind), (kind, "rotary"))
    expect_default(
        folder, "is_folding_model", [False], "the language model alone is read"
    )
    source = f"{prefix}embeddings."
    parts.move("embedding", f"{source}word_embeddings.weight", vocab_size, d)
    if kind == "absolute":
        parts.put("position", bert.take_positions(parts, source, d))
    if folder.flag("emb_layer_norm_before", False):
        parts.move_norm("entry.norm", f"{source}layer_norm", d)
    count = parts.move_layers(f"{prefix}encoder.layer.", LAYER, heads)
    parts.move_norm("final_norm", f"{prefix}encoder.emb_layer_norm_after", d)
    parts.config |= {
        "layer_norm": "pre",
        "layer_norm_epsilon": folder.get("layer_norm_eps", 1e-12),
        "activation": "gelu",
        **({"rotary": _rotary(parts)} if kind == "rotary" else {}),
        "layers": [{"weighting": "softmax"} for _ in range(count)],
    }
    if folder.flag("token_dropout", False):
        mask, share = folder.get("mask_token_id"), MASKED_IN_TRAINING
        parts.config["token_dropout"] = {"mask": mask, "share": share}


def _rotary(parts: Parts) -> dict[str, Any]:
    """Returns the config entry `rotary`, with stored frequencies if theta's differ."""
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
