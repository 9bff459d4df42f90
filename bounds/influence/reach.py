"""Whether a substitution moves anything that the query reads, however little.

What softmax reads moves with every row below it: a change that is computed as 0 there is one
that the float type cannot hold, unless the masks keep the position from the query or the two
symbols have one embedding.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jax_models.mask import SIGHTS, Mask
from jax_models.transformer import Transformer


def reaching(masks: Sequence[Mask], length: int, query: int) -> tuple[int, int]:
    """Returns the first and the last position that the query's row may depend on.

    Args:
        masks: of the layers, in order.
        length: n.
        query: the query's position.
    """
    first = last = query
    for mask in reversed(masks):
        if SIGHTS[mask].before:
            first = 0
        if SIGHTS[mask].after:
            last = length - 1
    return first, last


def may_move(
    model: Transformer,
    tokens: np.ndarray,
    query: int,
    position: np.ndarray,
    symbol: np.ndarray,
) -> np.ndarray:
    """Returns which substitutions move what a softmax layer reads [p].

    Args:
        model: a transformer.
        tokens: the input [n].
        query: the query's position.
        position: the replaced positions [p].
        symbol: the substitutes [p].
    """
    if all(layer.attention.weighting.hard for layer in model.layers):
        return np.zeros(position.shape, bool)
    masks: list[Mask] = [layer.attention.mask for layer in model.layers]
    first, last = reaching(masks, tokens.size, query)
    embedding = np.asarray(model.embedding)
    differs = (embedding[symbol] != embedding[tokens[position]]).any(axis=1)
    return differs & (first <= position) & (position <= last)


def shrinkage(
    embedding: np.ndarray,
    rows: np.ndarray,
    places: np.ndarray | None,
    position: np.ndarray,
    symbol: np.ndarray,
) -> np.ndarray:
    """Returns how much larger replaced rows are than those that come in, at least 1 [p].

    Above the first layer a row that has moved is the sum of what it was and its change,
    and has the rounding of either.

    Args:
        embedding: of the symbols [V, d].
        rows: of the input [n, d].
        places: what positions add to them [n, d], None for nothing.
        position: the replaced positions [p].
        symbol: the substitutes [p].
    """
    after = (
        embedding[symbol] if places is None else embedding[symbol] + places[position]
    )
    before, after = (np.abs(x).max(axis=1) for x in (rows[position], after))
    return np.maximum(before / np.where(after > 0, after, np.inf), 1)


def least_size(dtype: object) -> float:
    """Returns the size whose unit roundoff is the least number that a type holds.

    Args:
        dtype: a float type; what it flushes to 0 is below its least normal number.
    """
    info = jnp.finfo(dtype)
    return 2 * float(info.tiny) / float(info.eps)
