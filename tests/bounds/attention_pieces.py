"""Pieces of attention that version 2 of the file has, as options of a random model.

Every row is a law's case: the forward pass is the reference's, influences are brute
force's, what is not known of a piece is refused by name, and files hold it.
"""

import functools
from typing import Any

import numpy as np

from benchmarks import reference
from tests.bounds.influence.models import TOKENS, build
from tests.written import written

PIECES: dict[str, dict[str, Any]] = {
    "one key head": {"key_value_heads": 1},
    "two key heads of four": {"num_heads": 4, "key_value_heads": 2},
}

# What a message calls a piece that a method knows nothing of.
REFUSED: dict[str, str] = {}


@functools.cache
def model_of(piece: str, **options: Any) -> Any:
    """The model of a piece; its layers are alike."""
    return build({"mask": "future", **PIECES[piece], **options})


@functools.cache
def brute_force(piece: str, **options: Any) -> np.ndarray:
    """Influences on the last row by rerunning the reference [n, V]."""
    config, tensors = written(model_of(piece, **options))
    return reference.influence(config, tensors, TOKENS, include_query=True)
