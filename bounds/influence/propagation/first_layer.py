"""The first layer: exact changes of its rows when one token is replaced.

The base pass is that of the unchanged input. A row's summary holds what its softmax or
hard maximum over all keys needs to be merged with more keys. Ties are reports of how
near hard attention came to one, and None in a softmax layer. A column is the key and
value at one position; heads are the attended values of a row, concatenated over all
heads. A substitution replaces one token.

Only the replaced row i has a new input, so any other row sees one replaced column
(`other_rows`, O(d) per row); row i itself is changed by `own_rows`, O(n d) per position.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bounds.influence.propagation.pointwise import (
    RowBase,
    base_rows,
    change_many_rows,
    order_neurons,
    project_changes,
)
from jax_models.model.attending import (
    KeyStore,
    QueryBlock,
    compute_scores,
    project_key_changes,
    project_keys,
    project_queries,
    project_value_changes,
    project_values,
    score_changes,
    summarise,
)
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import sees_any, visible
from jax_models.model.pytree import pytree
from jax_models.model.transformer import (
    Transformer,
    attention_input,
    embed,
    encode_positions,
    join_heads,
    reduce_reports,
    symbol_changes,
    symbol_rows,
)
from jax_models.run.blocks import (
    key_tile,
    map_rows,
    row_block,
    slice_tile,
)
from jax_models.run.perturbation import perturb
from jax_models.weighting import Column, TieReport
from jax_models.weighting.base import same_position


def centred_store(
    attention: Attention,
    inputs: Float[Array, "tokens width"],
    positions: Int[Array, "tokens"] | None,
) -> tuple[KeyStore, Float[Array, "heads d_v"], Float[Array, "width"]]:
    """Keys and values of `inputs` less a centre c, the values' offset W_v c, and c.

    Keys are those of `keys_about`.

    A weighted mean of values is one of centred values plus the same offset, at every
    row that sees anything, so the offset drops out of all changes. Left in, its
    rounding would not: a large common part of the values would swamp them.
    """
    centre = common_part(inputs, attention)
    keys = keys_about(attention, inputs, centre, inputs.shape[0], positions)
    values = perturb(project_value_changes(attention, inputs - centre))
    offset = project_values(attention, centre[None])[:, 0]
    return KeyStore(keys, values), offset, centre


def keys_about(
    attention: Attention,
    inputs: Float[Array, "keys width"],
    centre: Float[Array, "width"],
    length: int,
    # None where keys are the same at all positions.
    positions: Int[Array, "keys"] | None,
) -> Float[Array, "heads keys d_k"]:
    """Keys of the inputs, less the centre where softmax cancels a common key offset."""
    # A vector added to all keys adds the same to all scores of a row. Softmax ignores such
    # a part, and it is left out: it may be far larger than the differences of scores, and
    # they would be rounded relative to it.
    same = attention.scoring.bilinear and attention.linear_keys
    if same and not attention.weighting.hard:
        keys = project_key_changes(attention, inputs - centre, length, positions)
        return perturb(keys, positions)
    return project_keys(attention, inputs, length, positions)


def common_part(
    rows: Float[Array, "rows width"], attention: Attention
) -> Float[Array, "width"]:
    """Mean of the rows, its entries set to 0 where the rows differ much."""
    # Any row would do. 0 rounds nothing: zeros and sums of whole numbers stay exact.
    there = attention.sight.present(jnp.arange(rows.shape[0], dtype=jnp.int32))
    there = None if there is None else there[:, None]
    mean = rows.mean(axis=0, where=there)
    apart = jnp.abs(rows - mean).max(axis=0, where=there, initial=0)
    return jnp.where(jnp.abs(mean) > 8 * apart, mean, 0)


@pytree
class PreparedLayer:
    """Base pass of a layer: all keys and values, and summaries of the wanted rows."""

    rows: Float[Array, "tokens width"]  # the layer's input
    centre: Float[Array, "width"]  # subtracted from rows before values are formed
    store: KeyStore  # values of centred rows: see `centred_store`
    queries: Float[Array, "heads rows d_k"]
    summary: Any  # fields [heads, rows, ...]
    base: RowBase  # fields [rows, ...]
    output: Float[Array, "rows width"]
    ties: TieReport | None
    # position encodings, in the first layer
    places: Float[Array, "tokens width"] | None = None


@pytree
class Replaced:
    """Replaced rows of a block of substitutions, with first-layer columns and changes."""

    position: Int[Array, "substitutions"]
    row_change: Float[Array, "substitutions width"]  # of y^(0) at the replaced position
    query_change: Float[Array, "heads substitutions d_k"]
    key: Float[Array, "heads substitutions d_k"]  # before
    key_change: Float[Array, "heads substitutions d_k"]
    # Columns last, as in all arrays of rows times columns: tiles read them as they lie.
    value: Float[Array, "heads d_v substitutions"]  # before
    value_change: Float[Array, "heads d_v substitutions"]
    # formed from the new row itself, not as a sum
    new_value: Float[Array, "heads d_v substitutions"]


def prepare_first(
    model: Transformer, tokens: Int[Array, "tokens"], wanted: Int[Array, "rows"]
) -> PreparedLayer:
    """Base pass of the first layer; summaries and output at positions `wanted` alone."""
    prepared = prepare_layer(model.layers[0], embed(model, tokens), wanted)
    if model.position is None:
        return prepared
    places = encode_positions(model, tokens.shape[0])
    return dataclasses.replace(prepared, places=places)


def prepare_layer(
    layer: Layer, rows: Float[Array, "tokens width"], wanted: Int[Array, "rows"]
) -> PreparedLayer:
    """Base pass of a layer on `rows`; summaries and output at positions `wanted` alone."""
    n, inputs = rows.shape[0], attention_input(layer, rows)
    attention = layer.attention
    everywhere = jnp.arange(n, dtype=jnp.int32)
    store, offset, centre = centred_store(attention, inputs, everywhere)
    queries = project_queries(attention, inputs[wanted], n, wanted)

    def run(block: QueryBlock) -> Any:
        at, y, q = block
        summary = summarise(attention, q.swapaxes(0, 1), at, store, settled=True)
        seen = sees_any(attention.sight, at, n)[:, None]
        values = attention.weighting.read(summary)
        heads = join_heads(values + jnp.where(seen, offset[:, None], 0))
        by_row = jax.tree.map(lambda x: x.swapaxes(0, 1), summary)
        base, written = base_rows(layer, y, heads)
        return by_row, order_neurons(layer, base), written

    per_row = attention.num_heads * key_tile(n) * attention.pair_width
    block = row_block(wanted.shape[0], per_row)
    rows_in = (wanted, rows[wanted], queries.swapaxes(0, 1))
    by_row, base, output = map_rows(run, rows_in, block)
    summary = jax.tree.map(lambda x: x.swapaxes(0, 1), by_row)
    ties = attention.weighting.ties(summary, wanted)
    return PreparedLayer(rows, centre, store, queries, summary, base, output, ties)


def replace_tokens(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    first: PreparedLayer,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
) -> Replaced:
    """Input row, query, key and value at each replaced position, and their changes."""
    layer, attention = model.layers[0], model.layers[0].attention
    places = None if first.places is None else first.places[position]
    change = symbol_changes(model, tokens[position], symbol, places)
    after = symbol_rows(model, symbol, places)
    rows, n = first.rows[position], tokens.shape[0]
    query, key, value = project_changes(layer, rows, change, n, position)
    after = attention_input(layer, after) - first.centre
    values = (
        first.store.values[:, position],
        value,
        project_value_changes(attention, after),
    )
    return Replaced(
        position,
        change,
        query,
        first.store.keys[:, position],
        key,
        *(x.swapaxes(1, 2) for x in values),
    )


def other_rows(
    layer: Layer,
    first: PreparedLayer,
    columns: Replaced,
    at: Int[Array, "rows"],
    rows: Any,  # of `take_rows`
) -> tuple[Float[Array, "rows width substitutions"], TieReport | None]:
    """Changes of output rows j != i by replacing token i (0 if j does not see i), ties."""
    heads, ties = other_heads(layer, first, columns, at, rows)
    return change_many_rows(layer, rows[2], heads), ties


def other_heads(
    layer: Layer,
    first: PreparedLayer,
    columns: Replaced,
    at: Int[Array, "rows"],
    rows: Any,  # of `take_rows`
) -> tuple[Float[Array, "rows concatenated substitutions"], TieReport | None]:
    """Changes of heads of rows j != i by replacing token i, and ties."""
    queries, summary, _ = rows
    attention, n = layer.attention, first.store.length
    keys, position = columns.key, columns.position
    scores = compute_scores(attention, queries, keys, n, at, position)
    seen = visible(attention.sight, at, position)
    column = Column(
        index=position,
        score=scores,
        score_change=score_changes(
            attention, queries, keys, n, at, moved_keys=columns.key_change
        ),
        value=columns.value,
        value_change=columns.value_change,
        visible=seen & ~same_position(at[:, None], position, scores.dtype),
        new_value=columns.new_value,
    )
    heads = attention.weighting.replace(summary, column)
    ties = attention.weighting.ties_replaced(summary, column, at)
    return heads.reshape(heads.shape[0], -1, heads.shape[-1]), ties


def take_rows(first: PreparedLayer, slots: Int[Array, "*rows"]) -> Any:
    """Queries, summaries and `RowBase` of a base pass's rows at the indices `slots`."""
    return (
        first.queries[:, slots],
        jax.tree.map(lambda x: x[:, slots], first.summary),
        jax.tree.map(lambda x: x[slots], first.base),
    )


def slice_rows(first: PreparedLayer, at: Int[Array, "rows"]) -> Any:
    """Queries, summaries and `RowBase` at consecutive positions of a full base pass."""
    return (
        slice_tile(first.queries, at, 1),
        jax.tree.map(lambda x: slice_tile(x, at, 1), first.summary),
        jax.tree.map(lambda x: slice_tile(x, at, 0), first.base),
    )


def report_each(at: Int[Array, "rows"], ties: TieReport | None) -> TieReport | None:
    """Tie report repeated for each row, for `map_rows` to concatenate; None stays."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*at.shape, *x.shape)), ties)


def join_reports(ties: TieReport | None) -> TieReport | None:
    """One tie report merged from those along the first axis; None if `ties` is None."""
    return None if ties is None else reduce_reports(ties)


def update_rows(
    # from the number of a round to a place, rows to put there, and ties
    form: Callable[[Int[Array, ""]], tuple[Int[Array, ""], Any, TieReport | None]],
    held: tuple[Any, TieReport | None],  # rows as they are, and ties of none
    rounds: Int[Array, ""],
    axis: int = 0,  # of the rows
) -> tuple[Any, TieReport | None]:
    """Rows of `held`, overwritten by the rows that `form` makes, and the merged ties."""

    def step(number: Int[Array, ""], so_far: Any) -> Any:
        rows, ties = so_far
        start, found, more = form(number)
        rows = jax.tree.map(
            lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, start, axis),
            rows,
            found,
        )
        return rows, ties if more is None else ties.merge(more)

    return jax.lax.fori_loop(0, rounds, step, held)
