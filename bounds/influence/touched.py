"""Which rows of a hard layer can tell that some keys moved.

A row's base summary holds its two best score cells. While every key that moved was below
them and stays below them, neither the attended value nor the tie report of the row can
change: it is not touched. All that has to be known of a (moved key, row) pair is its
score before and after, two products of width d_k. The comparison errs towards touching.

Shapes: p moved keys, r rows, h heads, e = d_k.
"""

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer
from bounds.influence.pointwise import read_change
from jax_models.attention import (
    compute_scores,
    project,
    project_query_changes,
    score_changes,
)
from jax_models.blocks import map_rows, row_block
from jax_models.layer import Layer
from jax_models.mask import visible


@jax.jit
def least_scores(layer: Layer, base: PreparedLayer) -> Array:
    """Returns, per row, the least score that touches it [h, r]; all touch a soft one."""
    return layer.attention.weighting.least_touching(base.summary, base.queries)


@jax.jit
def touched_rows(
    layer: Layer,
    base: PreparedLayer,
    least: Array,
    wanted: Array,
    moved: Array,
    change: Array,
) -> tuple[Array, Array]:
    """Returns which rows a moved key touches [p, r], and whether its query moves [p].

    Args:
        layer: the layer.
        base: its base pass over the wanted rows.
        least: of `least_scores` [h, r].
        wanted: positions of those rows [r].
        moved: positions of the keys that moved [p].
        change: of their input rows [p, d].
    """
    attention, n = layer.attention, base.store.length
    inner = read_change(layer, base.rows[moved], change)
    asks = project_query_changes(attention, inner, n, moved) != 0
    speaks = project(attention.key, None, inner), project(attention.value, None, inner)
    says = (speaks[0] != 0).any(axis=(0, 2)) | (speaks[1] != 0).any(axis=(0, 2))

    def run(block: tuple[Array, Array, Array]) -> Array:
        at, before, step = block
        before, step = before.swapaxes(0, 1), step.swapaxes(0, 1)
        old = compute_scores(attention, base.queries, before, n, wanted)
        grown = score_changes(
            attention, base.queries, before, n, wanted, moved_keys=step
        )
        best = (old + jnp.maximum(grown, 0)).swapaxes(1, 2)
        seen = visible(attention.mask, wanted, at).T
        return (best >= least[:, None]).any(axis=0) & seen

    per_key = 2 * attention.num_heads * wanted.shape[0] * attention.pair_width
    keys = base.store.keys[:, moved].swapaxes(0, 1)
    block = row_block(moved.shape[0], per_key)
    hits = map_rows(run, (moved, keys, speaks[0].swapaxes(0, 1)), block)
    return hits & says[:, None], asks.any(axis=(0, 2))
