"""1* in hard attention: one head looks for a 0 (Hahn 2020, section 5, discussion).

The control to PARITY: fixing one bit to 0 fixes the answer, so no restriction argument
applies, and one layer with one head is enough at every length.
"""

from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    CONSTANT,
    Head,
    build_layer,
    build_transformer,
)
from jax_models.weighting import LeftmostHardmax


class Coordinate(IntEnum):
    """Names of the coordinates of a row of the residual stream."""

    ZERO = 0  # is the token 0
    ONE = auto()  # is the token 1
    FOUND_ONE = auto()  # is the attended token 1, after layer 1


def ones_transformer(*, dtype: Any = jnp.float32) -> Transformer:
    """Returns the hard-attention transformer that recognises 1*, the strings of ones.

    One layer, one head, no position encoding, no query token: the result is the same at
    every position. The score of a column is 1 for the token 0 and 0 for the token 1, so
    the head attends to the leftmost 0 if there is one, and to position 0 otherwise; it
    copies whether that token is a 1. The logit is the copy, 1 on 1* and 0 elsewhere.
    Any tie rule gives the same answer, since tied columns hold the same token.

    Args:
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, both `substitutable`.

    Raises:
        InputError: for float64 without x64.

    Source:
        Hahn 2020, section 5, the discussion after Corollary 2.
    """
    y = Coordinate
    look = Head(
        query=[{CONSTANT: 1}],
        key=[{y.ZERO: 1}],
        value=[{y.ONE: 1}],
        write=[{y.FOUND_ONE: 1}],
    )
    layer = build_layer(len(y), weighting=LeftmostHardmax(), heads=[look], dtype=dtype)
    return build_transformer(
        {"0": {y.ZERO: 1}, "1": {y.ONE: 1}}, [layer], [{y.FOUND_ONE: 1}], 0.5
    )
