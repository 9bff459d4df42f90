"""Pieces of models that version 2 of the file has, as options of a random model."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

import jax_models as jm
from benchmarks import reference
from tests.bounds.influence.models import TOKENS, build
from tests.written import written

_TABLE = np.random.default_rng(3).normal(size=(2, 8))
PIECES: dict[str, dict[str, Any]] = {
    "one key head": {"key_value_heads": 1},
    "two key heads of four": {"num_heads": 4, "key_value_heads": 2},
    "window": {"window": 3},
    "window on both sides": {"window": 4, "mask": "none"},
    "window without the row": {"window": 2, "mask": "strict_future"},
    "alibi": {"distance_bias": jm.Alibi(jnp.asarray([0.5, 0.125])), "position": None},
    "distance buckets": {
        "distance_bias": jm.DistanceBuckets(jnp.asarray(_TABLE), True, 6),
        "mask": "none",
        "temperature": "inverse_log",
    },
    "normed queries and keys": {"query_key_norm": "layer_norm", "layer_norm": "pre"},
    "normed, grouped and rotary": {
        "query_key_norm": "rms_norm",
        "key_value_heads": 1,
        "rotary": jm.Rotary(4),
        "position": None,
    },
    "rotary": {"rotary": jm.Rotary(4), "position": None},
    "part of rotary, interleaved": {
        "d_model": 16,
        "rotary": jm.Rotary(4, 100.0, "interleaved", jm.LinearScaling(2.0)),
    },
    "rotary of llama": {
        "rotary": jm.Rotary(4, 50.0, "half", jm.Llama3Scaling(8.0, 1.0, 4.0, 16.0)),
        "key_value_heads": 1,
        "position": None,
    },
    "norm behind the embedding": {"entry_norm": True, "layer_norm": "post"},
    "narrow embedding": {"d_embedding": 4, "biases": False},
    "norm of a narrow embedding": {"entry_norm": True, "d_embedding": 6},
}

WINDOWED = ("certificate", "screened")
ENTERED = ("screened", "lumped", "supremum")


def refusal(piece: str, method: str) -> str | None:
    """What a message calls a piece that a method knows nothing of, None if it does it."""
    if "normed" in piece:
        return "a norm of queries"
    if "rotary" in piece:
        return "rotary positions"
    if "alibi" in piece or "distance" in piece:
        return "a bias of the distance"
    if "window" in piece and method not in WINDOWED:
        return "a sliding window"
    if "embedding" in piece and method not in ENTERED:
        return "behind them"
    return None


@functools.cache
def model_of(piece: str, **options: Any) -> Any:
    """The model of a piece; its layers are alike."""
    return build({"mask": "future", **PIECES[piece], **options})


@functools.cache
def brute_force(piece: str, **options: Any) -> np.ndarray:
    config, tensors = written(model_of(piece, **options))
    return reference.influence(config, tensors, TOKENS, include_query=True)
