"""What scores' changes are rounded relative to, from that of the rows they are made of.

Where keys or queries annihilate a change, its terms are larger than the change of a score.

Shapes: r rows, k keys, h heads, e = d_k, d model width.
"""

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.carried_rounding import carried_rounding, root_of_squares
from bounds.influence.sizes import scaled_norm, score_rounding
from jax_models.model.attending import project, score_scale
from jax_models.model.attention import Attention
from jax_models.model.rows import Norm


def projected_sizes(weight: Array, sizes: Array) -> Array:
    """Returns the root of squares of the sizes of rows, or of heads', by a matrix each.

    Args:
        weight: [h, e, d].
        sizes: [k, d] or [h, k, d].
    """
    axes = (None if sizes.ndim == 2 else 0), 0
    return jax.vmap(root_of_squares, in_axes=axes)(sizes, weight)


def score_slopes(
    attention: Attention, queries: Array, keys: Array, length: int
) -> tuple[Array, Array]:
    """Returns how far entries of queries, and of keys, move scores [h, 1, e].

    Whatever the positions are: with rotary ones a pair is one entry. They are less by 1 +
    S/2d: a radius has 2 d steps for what projections annihilate, and counts all that it is
    relative to for the S roundoffs of scores besides.

    Args:
        attention: the sublayer.
        queries: as scores use them [h, r, e], or as large as they can be.
        keys: likewise [h, k, e].
        length: n.
    """
    scale = score_scale(attention, length, jnp.arange(length, dtype=jnp.int32))
    queries, keys = map(jnp.abs, (queries, keys))
    steps = score_rounding(attention, queries, keys, scale, length)
    less = 1 + steps / (2 * attention.query.shape[2])
    queries, keys = (_unplaced(attention, x) for x in (queries, keys))
    by_query, by_key = attention.scoring.slopes(queries, keys, scale)
    if attention.scoring.bilinear:
        by_query = by_query / scale.min()
    return by_query[:, None] / less, by_key[:, None] / less


def query_sizes(
    attention: Attention, slopes: Array, before: Array, moved: Array, sizes: Array
) -> Array:
    """Returns what scores are rounded relative to by the changes of their queries [h, r].

    Args:
        attention: the sublayer.
        slopes: of `score_slopes` [h, 1, e], or those of each row.
        before: the rows that it reads [r, d].
        moved: their changes.
        sizes: what those are rounded relative to.
    """
    made = attention.query, attention.query_bias, attention.query_norm
    return _sizes(attention, slopes, made, before, moved, sizes)


def key_sizes(
    attention: Attention, slopes: Array, before: Array, moved: Array, sizes: Array
) -> Array:
    """Returns the same by changes of keys [h, k]; arguments are as of `query_sizes`."""
    made = attention.key_by_head, attention.key_bias_by_head, attention.key_norm
    return _sizes(attention, slopes, made, before, moved, sizes)


def slopes_of_rows(attention: Attention, slopes: Array) -> Array:
    """Returns how far entries of the rows of keys move scores [h, d], of `linear_keys`.

    Args:
        attention: the sublayer.
        slopes: by keys [h, 1, e].
    """
    weight = attention.key_by_head.swapaxes(1, 2)
    return jax.vmap(root_of_squares)(slopes, weight)[:, 0]


def _sizes(
    attention: Attention,
    slopes: Array,
    made: tuple[Array, Array | None, Norm | None],
    before: Array,
    moved: Array,
    sizes: Array,
) -> Array:
    """`query_sizes` of a projection, its bias and its norm."""
    weight, bias, norm = made
    found = projected_sizes(weight, sizes)
    if norm is not None:
        given = project(weight, bias, before), project(weight, None, moved), found
        found = carried_rounding(norm, *((x,) for x in given))
    return scaled_norm(slopes * _unplaced(attention, found))


def _unplaced(attention: Attention, rows: Array) -> Array:
    """Sizes of queries or keys, whatever the positions are."""
    return rows if attention.rotary is None else attention.rotary.sizes(rows)
