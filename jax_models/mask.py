"""Attention masks: which keys a query row sees.

A mask depends on positions only, never on tokens, so a replaced column is visible
before the replacement exactly when it is visible after it.
"""

from typing import Literal, get_args

import jax.numpy as jnp
from jax import Array

Mask = Literal["none", "future", "past", "strict_future", "strict_past"]
MASKS: tuple[str, ...] = get_args(Mask)


def visible(mask: Mask, rows: Array, keys: Array) -> Array:
    """Returns which `keys` each of `rows` sees, as booleans [rows, keys].

    `future` hides the future (j <= i, causal), `past` hides the past (j >= i); the
    strict forms hide the row itself too, so a row may see nothing at all.

    Args:
        mask: the name of the mask.
        rows: 0-based positions of the queries [rows].
        keys: 0-based positions of the keys [keys].

    Returns:
        Booleans [rows, keys].
    """
    i, j = rows[:, None], keys[None, :]
    match mask:
        case "none":
            return jnp.ones((rows.shape[0], keys.shape[0]), bool)
        case "future":
            return j <= i
        case "past":
            return j >= i
        case "strict_future":
            return j < i
        case "strict_past":
            return j > i


def sees_any(mask: Mask, rows: Array, length: int) -> Array:
    """Returns whether each row sees any position at all [r].

    Args:
        mask: the mask.
        rows: 0-based positions of the rows [r].
        length: n.
    """
    if mask == "strict_future":
        return rows > 0
    if mask == "strict_past":
        return rows < length - 1
    return jnp.ones(rows.shape, bool)
