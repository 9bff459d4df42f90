"""What heads' changes are rounded relative to where one column of a layer is replaced.

The replaced value's, times its weight t; and where keys annihilate the change, its score's
(`head_rounding`), times t (1 - t) and how far values are from their mean. Of the replaced
row all scores are off, by its query.

Shapes: i substitutions, r rows, h heads, v = d_v.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer, Replaced
from bounds.influence.head_rounding import (
    annihilated,
    distances,
    read_with_sizes,
    value_sizes,
)
from bounds.influence.score_sizes import key_sizes, query_sizes, score_slopes
from jax_models.model.attending import project_queries
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.transformer import attention_input


@register
@dataclasses.dataclass(frozen=True)
class ReplacedSizes:
    """What a block of substitutions is rounded relative to, as the heads of a row read it."""

    value: Array  # [h, i, v]
    score: Array  # [h, i]
    apart: Array  # [h, i, v] how far values are from their mean
    width: int = dataclasses.field(metadata={"static": True})  # d

    def weighed(self, weight: Array, moves: Array, change: Array) -> Array:
        """Returns what the heads of rows are rounded relative to [h, r, i, v].

        Args:
            weight: t of the columns [h, r, i].
            moves: likewise t (1 - t); see `Weighting.replaced_weight`.
            change: likewise of their scores.
        """
        score = annihilated(self.score[:, None], change, self.width)
        found = weight[..., None] * self.value[:, None]
        return found + (moves * score)[..., None] * self.apart[:, None]


def replaced_sizes(
    layer: Layer, first: PreparedLayer, replaced: Replaced, own: bool = False
) -> ReplacedSizes:
    """Returns the sizes of a block of substitutions.

    Args:
        layer: the layer.
        first: its base pass.
        replaced: the block [i].
        own: whether for the replaced rows, whose queries have moved.
    """
    attention, n, at = layer.attention, first.store.length, replaced.position
    before = first.rows[at]
    moved, size = read_with_sizes(layer, before, replaced.row_change)
    read = attention_input(layer, before), moved, size
    apart = distances(first.store.values) + jnp.abs(replaced.value_change)
    if own:
        asked = jnp.abs(project_queries(attention, read[0], n, at))
        asked = asked + jnp.abs(replaced.query_change)
        keys = jnp.abs(first.store.keys).max(axis=1, keepdims=True)
        keys = keys + jnp.abs(replaced.key_change)

        def each(asked: Array, keys: Array) -> tuple[Array, Array]:
            found = score_slopes(attention, asked[:, None], keys[:, None], n)
            return found[0][:, 0], found[1][:, 0]

        by_query, by_key = jax.vmap(each, in_axes=1, out_axes=1)(asked, keys)
        score = query_sizes(attention, by_query, *read)
        score = jnp.hypot(score, key_sizes(attention, by_key, *read))
    else:
        _, by_key = score_slopes(attention, first.queries, first.store.keys, n)
        score = key_sizes(attention, by_key, *read)
    values = value_sizes(attention, size)
    return ReplacedSizes(values, score, apart, before.shape[1])
