"""What the base pass and the adjoint pass fix of a layer that is screened.

Source: docs/screened.md, sections 2.1 and 2.2.
"""

import dataclasses

import jax
from jax import Array

from bounds.influence.first_layer import PreparedLayer
from bounds.influence.screening.adjoint import pull_columns, pull_queries, row_scales
from bounds.influence.screening.row_map import RowMap, make_row_map
from bounds.influence.screening.row_statistics import RowStatistics, weigh_rows
from bounds.matrix_norm import spectral_norms
from bounds.row_slopes import pull
from jax_models.blocks import map_rows
from jax_models.layer import Layer
from jax_models.pytree import register

# Rows whose derivatives are held at once.
ROWS_AT_ONCE = 256


@register
@dataclasses.dataclass(frozen=True)
class ScreenedLayer:
    """What the base pass and the adjoint pass fix of a layer."""

    prepared: PreparedLayer
    statistics: RowStatistics
    rows: RowMap
    sent: Array  # [n, c, h v] cotangents of the heads' outputs
    head_weight: Array  # [n, h] their norms
    columns: Array  # [n, c, d] N_m, at what attention reads
    input_weight: Array  # [n] norm of the cotangent of what attention reads
    row_weight: Array  # [n] of the cotangent of the row, past attention
    query_weight: Array  # [n] of that through the row's own query
    magnitude: Array  # [n] of the terms of N_m
    map_norms: tuple[Array, Array, Array]  # [h] of keys, values and queries
    query_scale: Array  # [n] what the queries are divided by
    centres: tuple[Array, Array]  # [h, e] and [h, v], mean key and value


@jax.jit
def make_screened_layer(
    layer: Layer, prepared: PreparedLayer, positions: Array, cotangents: Array
) -> tuple[ScreenedLayer, Array]:
    """Returns the layer's base, and the cotangents of its input rows [n, c, d].

    Args:
        layer: softmax, dot-product scores.
        prepared: its base pass over r rows, those that are read.
        positions: their positions [r].
        cotangents: of what is wanted, by those rows of the layer's output [r, c, d].
    """
    attention, n = layer.attention, prepared.store.length
    statistics = weigh_rows(attention, prepared, positions)
    rows, pulled = map_rows(
        lambda block: make_row_map(layer, *block),
        (prepared.base, cotangents),
        ROWS_AT_ONCE,
    )
    scale = row_scales(attention, n, positions)
    heads = pulled["heads"]
    columns, magnitude = pull_columns(attention, prepared, statistics, positions, heads)
    queries = pull_queries(attention, statistics, scale, heads)
    read = columns.at[positions].add(queries)
    program = layer.reads
    before = pull(program, {"y": prepared.rows}, {program.output: read})["y"]
    by_head = heads.reshape(*heads.shape[:2], attention.num_heads, -1)
    store = prepared.store
    base = ScreenedLayer(
        prepared=prepared,
        statistics=statistics,
        rows=rows,
        sent=heads,
        head_weight=spectral_norms(by_head.swapaxes(1, 2)),
        columns=columns,
        input_weight=spectral_norms(read),
        row_weight=spectral_norms(pulled["y"]),
        query_weight=spectral_norms(queries),
        magnitude=magnitude,
        map_norms=map_norms(layer),
        query_scale=scale,
        centres=(store.keys.mean(axis=1), store.values.mean(axis=1)),
    )
    return base, before.at[positions].add(pulled["y"])


def map_norms(layer: Layer) -> tuple[Array, Array, Array]:
    """Returns the spectral norms of each head's key, value and query map [h]."""
    attention = layer.attention
    key, value, query = (
        spectral_norms(w) for w in (attention.key, attention.value, attention.query)
    )
    return key, value, query
