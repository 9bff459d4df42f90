"""Rows of an input without one of its tokens, compared with rows of the whole input.

Row j of the input is compared with the row that carries its token afterwards: j before
the deleted position, j - 1 behind it. The deleted position's own row has none.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bounds.readings import unsupported_padding
from jax_models import Transformer


def without_token(
    tokens: Int[Array, "tokens"], position: Int[Array, ""], count: int
) -> Int[Array, "count"]:
    """First `count` tokens after deleting the one at `position`; the last is repeated."""
    at = jnp.arange(count, dtype=jnp.int32)
    behind = jnp.minimum(at + 1, tokens.shape[0] - 1)
    return tokens[jnp.where(at < position, at, behind)]


def is_causal(model: Transformer) -> bool:
    """True if no row depends on later tokens or on the length of the input."""
    sights = [layer.attention.sight for layer in model.layers]
    return unsupported_padding(model) is None and not any(x.after for x in sights)


def reached_by_deletion(
    model: Transformer,
    rows: Int[np.ndarray, "rows"],
    position: Int[np.ndarray, "deletions"],
) -> Bool[np.ndarray, "deletions rows"]:
    """True where deleting the token at a position may change a watched row."""
    at = position[:, None]
    # Under a causal mask rows before the deleted token stay as they are.
    return rows > at if is_causal(model) else rows != at
