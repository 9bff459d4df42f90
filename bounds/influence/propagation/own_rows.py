"""Change of the replaced row itself in the first layer: its query and its own key move.

A substitution replaces one token, at position i, and row i is the row there; the base
pass is that of the unchanged input. A tie report (None for softmax) holds how near hard
attention came to a tie. Softmax attention with scores that are products takes sums over
all keys by products of matrices; everything else merges changes of keys in tiles.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    Replaced,
    join_reports,
    report_each,
    take_rows,
)
from bounds.influence.propagation.pointwise import change_rows
from jax_models.model.attending import (
    compute_scores,
    own_score_changes,
    temperature,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import (
    fold_tiles,
    formed_once,
    key_tile,
    map_rows,
    row_block,
    slice_tile,
)
from jax_models.run.compiler import SAFE_ROWS
from jax_models.weighting import MovedKeys, TieReport, spread_of
from jax_models.weighting.base import same_position
from jax_models.weighting.exponentials import exp, exp_and_expm1

product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

# A result smaller than its largest part by more than this factor has lost digits.
LOSS = 64.0
# Least and largest sum of new weights, relative to the old ones, that keep their digits,
# and changes of scores from which on an old weight that underflows may matter.
LEAST, MOST, LARGEST = 1 / 16, 1e6, 16


def own_rows(
    layer: Layer,
    first: PreparedLayer,
    replaced: Replaced,
    slots: Int[Array, "substitutions"],  # where the base pass holds row i
    *,
    alike: bool = False,  # whether keys and queries of all change by the same vectors
) -> tuple[Float[Array, "substitutions width"], TieReport | None]:
    """Changes of output rows i by replacing token i, and a tie report."""
    attention = layer.attention
    # One CPU compiler errs in products of more rows.
    short = first.store.length <= SAFE_ROWS
    if short and attention.scoring.bilinear and not attention.weighting.hard:
        return _softmax_rows(layer, first, replaced, slots, alike), None
    return merged_rows(layer, first, replaced, slots)


def _softmax_rows(
    layer: Layer,
    first: PreparedLayer,
    replaced: Replaced,
    slots: Int[Array, "substitutions"],
    alike: bool,
) -> Float[Array, "substitutions width"]:
    """Changes of output rows i by replacing token i, by sums over keys.

    With the values v_m of all keys m, row i's old weights a_m and weighted mean, and changes
    d_m of its scores, a common part left out,

        mean' - mean = sum_m a_m (e^d_m - 1) (v_m - mean) / sum_m a_m e^d_m

    plus the new weight of key i times the change of its value. Where this loses digits,
    new weights less old ones, a_m (e^x_m - 1) with x_m = d_m - log sum_m a_m e^d_m, are
    formed for each key but the top one t, and summed times v_m - v_t.
    """
    store, attention, n = first.store, layer.attention, first.store.length
    everywhere = jnp.arange(n, dtype=jnp.int32)
    centred = (store.keys - store.keys.mean(axis=1, keepdims=True)).swapaxes(1, 2)
    reads = jnp.concatenate([store.values, jnp.ones_like(store.values[..., :1])], -1)
    arrays = (slots, *_by_row(replaced)[:5])

    def shift_by(
        query_change: Float[Array, "heads #rows d_k"],
    ) -> tuple[Shaped[Array, "heads #rows _"], ...]:
        shift = product(query_change, centred)
        gain = exp_and_expm1(shift)[1]
        small = jnp.abs(shift).max(axis=-1, keepdims=True) < LARGEST
        return shift, gain, small

    # A norm of queries, or a temperature by position, changes a query by its row.
    by_position = temperature(attention, n, replaced.position).ndim
    shared = alike and attention.query_norm is None and not by_position
    shifts = shift_by(replaced.query_change[:, :1]) if shared else None

    def run(part: tuple[Shaped[Array, "rows ..."], ...]) -> Float[Array, "rows width"]:
        slot, at, row_change, *by_row = part
        query_change, key_change, value_change = (x.swapaxes(0, 1) for x in by_row)
        queries, summary, base = take_rows(first, slot)
        mean, rest = attention.weighting.read(summary), summary.lse_above_top[..., None]
        above = compute_scores(attention, queries, store.keys, n, at, everywhere)
        above = above - summary.top_score[..., None]
        seen = visible(attention.sight, at, everywhere)
        old = jnp.where(seen, exp(above - rest), 0)
        shift, gain, small = shifts or shift_by(query_change)
        moved = ((queries + query_change) * key_change).sum(axis=-1, keepdims=True)
        here = at[None, :, None]
        own, own_shift, own_gain = (
            jnp.take_along_axis(jnp.broadcast_to(x, old.shape), here, axis=2)
            for x in (old, shift, gain)
        )
        raised, gained = exp_and_expm1(own_shift + moved)
        gained = own * (gained - own_gain)
        sums = product(old * gain, reads)
        grown = sums[..., -1:] + gained
        parts = (
            sums[..., :-1],
            -sums[..., -1:] * mean,
            gained * (store.values[:, at] - mean),
            own * raised * value_change,
        )
        total = 1 + grown
        result = sum(parts[1:], parts[0])
        size, most = (jnp.abs(x).max(axis=-1) for x in (result, jnp.stack(parts)))
        # Comparisons with a NaN are false.
        kept = (size * LOSS >= most.max(axis=0))[..., None]
        near = (total > LEAST) & (total < MOST)
        near &= small & (jnp.abs(own_shift + moved) < LARGEST)
        kept &= near

        def by_key() -> Float[Array, "heads rows d_v"]:
            change = shift + jnp.where(
                same_position(at[:, None], everywhere, above.dtype), moved, 0
            )
            # Against their largest, new weights have their digits whatever they sum to.
            scores = jnp.where(seen, above + change, -jnp.inf)
            largest = scores.max(axis=-1, keepdims=True)
            raised = jnp.where(seen, exp(scores - largest), 0)
            whole = raised.sum(axis=-1, keepdims=True)
            whole = jnp.where(whole > 0, whole, 1)  # of a row that sees nothing
            new = raised / whole
            # Small changes of weights are formed from changes of scores.
            log_total = jnp.log(whole) + largest - rest
            change = change - jnp.where(near, jnp.log1p(grown), log_total)
            _, gain = exp_and_expm1(change)
            gain = jnp.where(jnp.abs(change) < 1, old * gain, new - old)
            # Weights add up to 1: the top column's own change would only bring rounding.
            top = same_position(summary.top_index[..., None], everywhere, above.dtype)
            sums = product(jnp.where(seen & ~top, gain, 0), reads)
            lone = sums[..., :-1] - sums[..., -1:] * summary.top_value
            return lone + jnp.take_along_axis(new, here, axis=2) * value_change

        heads = jax.lax.cond(
            kept.all(),
            lambda: result / total,
            lambda: jnp.where(kept, result / total, by_key()),
        )
        return change_rows(layer, base, row_change, join_heads(heads))

    per_row = 6 * attention.num_heads * n
    return map_rows(run, arrays, row_block(slots.shape[0], per_row))


def merged_rows(
    layer: Layer,
    first: PreparedLayer,
    replaced: Replaced,
    slots: Int[Array, "substitutions"],
) -> tuple[Float[Array, "substitutions width"], TieReport | None]:
    """Changes of output rows i by merging key changes tile by tile, and a tie report."""
    attention, n, tile = (
        layer.attention,
        first.store.length,
        key_tile(first.store.length),
    )
    weighting = attention.weighting

    def run(part: tuple[Any, Int[Array, "block"]]) -> Any:
        (at, row_change, *projected), slots = part
        query_change, key_change, value_change, new_value = (
            x.swapaxes(0, 1) for x in projected
        )
        queries, summary, base = take_rows(first, slots)
        # Behind a wall: jaxlib 0.10.2 and 0.12.0.1 abort on AVX-512 where the conversion of
        # these integers is joined to the comparison; see `same_position`.
        places = formed_once(at[0] >= 0, lambda x: x.astype(queries.dtype), at)

        def lift(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            keys = slice_tile(first.store.keys, index, 1)
            around = spread_of(weighting, slice_tile(first.store.values, index, 1))
            own = index[None, :].astype(places.dtype) == places[:, None]
            moved = query_change, key_change, own
            keys_moved = MovedKeys(
                index=index,
                score=compute_scores(attention, queries, keys, n, at, index),
                score_change=own_score_changes(attention, queries, keys, *moved, n, at),
                visible=visible(attention.sight, at, index) & valid,
                spread=around,
                carry=lambda w: _own(w, own)[..., None] * value_change,
                arrive=lambda w, o: (
                    around(jnp.where(own, 0.0, w), o)
                    + _own(w, own)[..., None] * (new_value - o)
                ),
            )
            return weighting.lift_change(summary, keys_moved)

        change = fold_tiles(lift, weighting.merge_change, n, tile)
        heads = join_heads(weighting.read_change(change))
        rows = change_rows(layer, base, row_change, heads)
        return rows, report_each(at, weighting.ties_changed(change, at))

    block = row_block(slots.shape[0], 4 * attention.num_heads * tile)
    rows, ties = map_rows(run, (_by_row(replaced), slots), block)
    return rows, join_reports(ties)


def _by_row(replaced: Replaced) -> tuple[Shaped[Array, "substitutions ..."], ...]:
    """Arrays by substitution: position, row, query, key, value changes, new value."""
    values = replaced.value_change, replaced.new_value
    return (
        replaced.position,
        replaced.row_change,
        *(x.swapaxes(0, 1) for x in (replaced.query_change, replaced.key_change)),
        *(x.transpose(2, 0, 1) for x in values),
    )


def _own(
    weights: Float[Array, "heads substitutions keys"],
    own: Bool[Array, "substitutions keys"],
) -> Float[Array, "heads substitutions"]:
    """Weight of row i on its own key, out of weights on a tile's keys; 0 if not there."""
    return jnp.where(own, weights, 0.0).sum(axis=-1)
