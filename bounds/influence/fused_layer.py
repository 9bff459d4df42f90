"""A layer whose rows have all moved, for a block of substitutions in one kernel.

A program has a row, and a block of substitutions as lanes, and goes through the keys that
the row sees (`fused_sums`). The base score of a pair of rows is formed there, once for all
lanes; its change is (q + dq) . dk + dq . k in each. So nothing of a (row, key) pair is
stored: in memory are changes of queries, keys and values, and the sums, O(n d) for each
substitution. What the layer does row by row stays as it is (`pointwise`).

Rows that no substitution of the block can have reached see no keys here.

Shapes: i substitutions, r rows, k keys, h heads, e = d_k, v = d_v.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer, take_rows
from bounds.influence.fused_kernel import run_lanes
from bounds.influence.fused_sums import (
    Sums,
    Term,
    add_term,
    clear_sums,
    each,
    lacks_of_scores,
    loop,
    rescaled,
    shapes_of_sums,
)
from bounds.influence.head_rounding import (
    NOTED,
    annihilated,
    beside,
    carry_rows,
    distances,
    heads_and_sizes,
    moved_scores,
    read_with_sizes,
    value_sizes,
)
from bounds.influence.pointwise import change_rows
from jax_models.model.attending import (
    project_key_changes,
    project_query_changes,
    project_value_changes,
)
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.transformer import attention_input
from jax_models.run.blocks import fold_tiles, key_tile, map_rows, row_block
from jax_models.weighting.softmax_change import (
    SoftmaxChange,
    merge_softmax_change,
    read_softmax_change,
)

# A warp: blocks of substitutions that keep all their rows are no larger than this.
LANES = 32


def lacks_of_fused_layer(layer: Layer) -> str | None:
    """Returns why the kernel cannot do a layer; None if it can.

    Args:
        layer: any but the first.
    """
    if layer.attention.weighting.hard:
        return "it moves all rows of softmax layers, and the model has a hard one"
    if layer.attention.distance_bias is not None:
        return "it has no distance biases"
    return lacks_of_scores(layer)


def numbers_kept(layer: Layer) -> int:
    """Returns how many numbers of a row and a substitution are held at once, from above."""
    attention = layer.attention
    by_head = 4 * attention.key_width + 4 * attention.value_width + 32
    return attention.num_heads * by_head


@register
@dataclasses.dataclass(frozen=True)
class _Base:
    """What the kernel reads of the base pass: of rows r, and of keys k."""

    position: Array  # [r]
    queries: Array  # [r, h, e]
    lse: Array  # [r, h]
    top_index: Array  # [r, h]
    top_value: Array  # [r, h, v]
    keys: Array  # [k, h, e]
    values: Array  # [k, h, v]


@register
@dataclasses.dataclass(frozen=True)
class _Changes:
    """What it reads of substitutions i."""

    queries: Array  # [r, h, e, i]
    keys: Array  # [k, h, e, i]
    values: Array  # [k, h, v, i]
    by_key: Array | None = None  # [k, h, i] of the last layer, as in `moved_scores`
    by_query: Array | None = None  # [r, h, i]


@register
@dataclasses.dataclass(frozen=True)
class _Old:
    """What it writes of old weights a, the same in all lanes: of the keys so far."""

    peak: Array  # [h, i] the largest log a
    mass: Array  # [h, i] sum a, times e^-peak
    deviation: Array  # [h, v, i] sum a (v - top value), times e^-peak


class _Body(NamedTuple):
    """References to all that a program reads and writes."""

    base: Any
    changes: Any
    sums: Any
    old: Any
    width: int  # d


def move_rows_at_once(
    layer: Layer,
    base: PreparedLayer,
    changes: Array,
    moved: tuple[Array, Array],
    wanted: Array | None = None,
) -> Any:
    """Returns the changes of `deep.move_rows` of each substitution [i, r, d].

    Args:
        layer: any layer but the first, that `lacks_of_fused_layer` says nothing of.
        base: its base pass, of the wanted rows.
        changes: of its input rows [i, n, d].
        moved: the first and the last row that a substitution may have moved; of the
            others exactly zero is returned.
        wanted: positions of the rows [r], of the last layer, likewise with what their
            changes are rounded relative to; all by default.
    """
    attention, (count, n, _) = layer.attention, changes.shape
    everywhere = jnp.arange(n, dtype=jnp.int32)
    last, wanted = wanted is not None, everywhere if wanted is None else wanted
    before = attention_input(layer, base.rows)

    def project(change: Array) -> tuple[_Changes, Any]:
        inner, size = read_with_sizes(layer, base.rows, change)
        values = project_value_changes(attention, inner)
        queries = project_query_changes(
            attention, inner[wanted], n, wanted, before[wanted]
        )
        keys = project_key_changes(attention, inner, n, everywhere, before)
        if not last:
            return _Changes(queries, keys, values), None
        sizes = value_sizes(attention, size)
        off = moved_scores(layer, base, inner, size, wanted, queries, keys)
        values = beside(values, sizes)
        return _Changes(queries, keys, values, *off), sizes.max(axis=1, keepdims=True)

    lanes, held = jax.vmap(project, out_axes=-1)(changes)
    lanes = jax.tree.map(lambda x: x.swapaxes(0, 1), lanes)
    summary = base.summary
    # Sizes go beside values, as more coordinates, 0 before the change.
    room = (0, 0), (0, 0), (0, 1 + NOTED if last else 0)
    tops, values, means = (
        jnp.pad(x, room)
        for x in (summary.top_value, base.store.values, summary.above_top)
    )
    by_head = base.queries, summary.lse, summary.top_index, tops
    by_head = *by_head, base.store.keys, values
    numbers = _Base(wanted, *(x.swapaxes(0, 1) for x in by_head))
    mean = means.swapaxes(0, 1)[:, :, None]
    apart = distances(base.store.values)

    def lift(index: Array, valid: Array) -> SoftmaxChange:
        seen = jnp.stack([jnp.where(valid, index, n).min(), index[-1] + 1])
        reached = jnp.stack(moved).astype(jnp.int32)
        sums, old = _sum_keys(attention, numbers, lanes, seen, reached)
        return SoftmaxChange(
            old.peak,
            old.mass,
            centre=sums.centre,
            deviation=old.deviation.swapaxes(2, 3),
            mean=mean,
            reference=sums.centre + sums.reference,
            total=sums.total,
            gained=sums.gained,
            shifted=sums.shifted.swapaxes(2, 3),
        )

    # More keys than are summed one after the other on the plain path neither are here.
    folded = fold_tiles(lift, merge_softmax_change, n, key_tile(n))
    heads = read_softmax_change(folded).swapaxes(1, 2)  # [r, i, h, v]

    def leave(block: tuple[Array, Array, Array]) -> Any:
        slots, entering, heads = block
        _, _, rows = take_rows(base, slots)

        def one(entering: Array, heads: Array, held: Any) -> Any:
            if not last:
                return change_rows(layer, rows, entering, heads.reshape(len(heads), -1))
            about = attention.weighting, heads.swapaxes(0, 1), held, apart
            return carry_rows(layer, rows, entering, *heads_and_sizes(*about))

        return jax.vmap(one, in_axes=(1, 1, -1), out_axes=1)(entering, heads, held)

    slots = jnp.arange(wanted.shape[0], dtype=jnp.int32)
    entering = changes.swapaxes(0, 1)[wanted]
    per_row = 4 * count * (heads[0, 0].size + layer.feed_forward.hidden)
    block = row_block(wanted.shape[0], per_row)
    found = map_rows(leave, (slots, entering, heads), block)
    return jax.tree.map(lambda x: x.swapaxes(0, 1), found)


def _sum_keys(
    attention: Attention, base: _Base, changes: _Changes, seen: Array, reached: Array
) -> tuple[Sums, _Old]:
    """The sums of all rows over some keys [r, h, ...].

    Args:
        attention: the layer's.
        base: what is read of the base pass.
        changes: likewise of the substitutions.
        seen: the first key that is summed, and the first behind the last [2].
        reached: the first and the last row that may have moved [2].
    """

    def body(row: Array, numbers: Any, changes: Any, written: Any) -> None:
        (seen, reached, base), at = numbers, numbers[2].position[row]
        first, end = attention.sight.run(at, base.keys.shape[0])
        first, end = jnp.maximum(first, seen[0]), jnp.minimum(end, seen[1])
        moves = (reached[0] <= at) & (at <= reached[1])
        end = jnp.where(moves, end, first)
        sums, old = written
        body = _Body(base, changes, sums, old, attention.query.shape[2])
        each(base.keys.shape[1], lambda h: _sum_head(body, row, h, first, end))

    (rows, heads, width), dtype = base.top_value.shape, base.keys.dtype
    sums = shapes_of_sums(heads, width, dtype)
    written = sums, _Old(sums.total, sums.total, sums.shifted)
    numbers = seen, reached, base
    return run_lanes(body, numbers, changes, written, rows, LANES, "fused_layer")


def _sum_head(body: _Body, row: Array, h: Array, first: Array, end: Array) -> None:
    """Writes the sums of a head of a row over some keys."""
    base, changes, sums, old, _ = body
    none, width = changes.queries[row, h, 0] * 0, old.deviation.shape[1]
    clear_sums(sums, h, none)

    def clear(k: Array) -> None:
        old.deviation[h, k] = none

    each(width, clear)

    def add(at: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
        peak, mass = carried
        log_old, change = _score(body, row, h, at)

        def away(k: Array) -> Array:
            return base.values[at, h, k] - base.top_value[row, h, k]

        def carry(k: Array) -> Array:
            held = changes.values.shape[2]
            if held == width:
                return changes.values[at, h, k]
            # Then B, A and C of `head_rounding`.
            off = changes.by_key[at, h] + changes.by_query[row, h]
            off = annihilated(off, change, body.width)
            rest = jnp.where(k == width - 1, 1, off)
            rest = jnp.where(at == base.top_index[row, h], 0, rest)
            noted = jnp.where(k == held, off, rest)
            found = changes.values[at, h, jnp.minimum(k, held - 1)]
            return jnp.where(k < held, found, noted)

        term = Term(
            score=change,
            log_old=log_old - base.lse[row, h],
            away=away,
            carried=carry,
            peak=peak,
            mass=mass,
            deviation=lambda k: old.deviation[h, k],
        )
        add_term(sums, h, term)
        peak, weight, shrink = rescaled(term.log_old, peak)

        def deviate(k: Array) -> None:
            old.deviation[h, k] = shrink * old.deviation[h, k] + weight * away(k)

        each(width, deviate)
        return peak, shrink * mass + weight

    zero = jnp.zeros((), none.dtype)
    peak, mass = jax.lax.fori_loop(first, end, add, (zero - jnp.inf, zero))
    old.peak[h], old.mass[h] = none + peak, none + mass


def _score(body: _Body, row: Array, h: Array, at: Array) -> tuple[Array, Array]:
    """The base score of a key, and its change [i]."""
    base, changes = body.base, body.changes

    def add(e: Array, both: tuple[Array, Array]) -> tuple[Array, Array]:
        (score, change), query = both, base.queries[row, h, e]
        moved, key = changes.queries[row, h, e], base.keys[at, h, e]
        change = change + (query + moved) * changes.keys[at, h, e] + moved * key
        return score + query * key, change

    none = changes.queries[row, h, 0] * 0
    return loop(base.keys.shape[2], add, (jnp.zeros((), none.dtype), none))
