"""Change propagation through layers of classes: k rows stand for all n.

Every class row moves: in each layer its query and all keys and values, in change form,
as in `deep`, with the count of each class in the sums over keys. The replaced row is a
class of one row that changes, so counts are the same before and after. No two outputs
are subtracted, whatever the depth.

Shapes: as in `classes`; j of the k rows are computed, h heads.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.centred_store import centred_store
from bounds.influence.change_block import merge_reports
from bounds.influence.classes import Configurations
from bounds.influence.equal_columns import largest_weight, written_share
from bounds.influence.head_rounding import (
    beside,
    carry_rows,
    distances,
    heads_and_sizes,
    lift_with_sizes,
    read_with_sizes,
    value_sizes,
)
from bounds.influence.pointwise import base_rows
from bounds.influence.score_sizes import key_sizes, query_sizes, score_slopes
from bounds.influence.sizes import (
    entry_condition,
    output_size,
    row_condition,
    scaled_norm,
    score_rounding,
)
from bounds.influence.substitution import least_size, padded
from bounds.influence.target import AnyTarget, target_steps
from bounds.influence.target_rounding import move_target
from bounds.influence.ties import Ties
from bounds.influence.under_way import ahead
from bounds.numbers.rounding import change_radius
from jax_models.model.attending import (
    compute_scores,
    project_key_changes,
    project_queries,
    project_query_changes,
    project_value_changes,
    project_values,
    score_changes,
    score_scale,
)
from jax_models.model.layer import Layer
from jax_models.model.reweight import at_length
from jax_models.model.transformer import (
    Transformer,
    join_heads,
    reduce_reports,
    symbol_changes,
    symbol_rows,
)
from jax_models.model.transformer import attention_input as read_rows
from jax_models.run.blocks import tile_elements
from jax_models.run.perturbation import perturbation
from jax_models.weighting import (
    MovedKeys,
    TieReport,
    contract,
    spread_of,
)

# Configurations at once: few sizes, so that few programs are compiled; more than these
# leave the cache.
AT_ONCE = (16, 128, 1024)
# Batches under way at a time.
IN_FLIGHT = 2
# A length for temperatures that are numbers, and do not ask for one.
ANY = 1


class MovedClasses(NamedTuple):
    """A layer's output at j class rows, and what its rounding depends on."""

    rows: Array  # [j, d]
    change: Array  # [j, d]
    sizes: Array  # [j, d] what that is rounded relative to
    ties: TieReport | None
    score_steps: Array  # [] unit roundoffs of the scores, ln(count) included
    condition: Array  # [] of the rows, as `row_condition` says
    share: Array  # [] of the output's size, as `equal_columns` says


def move_classes(
    layer: Layer,
    rows: Array,
    change: Array,
    after: Array | None,
    one: Configurations,
    query_only: bool,
) -> MovedClasses:
    """Returns the layer's output rows and their changes.

    Args:
        layer: The layer, without a mask, its temperature a number (`at_length`).
        rows: Its input, one row for each class [k, d].
        change: Of those rows [k, d].
        after: The rows after the change, where they are known better than as sums.
        one: One configuration, fields [k].
        query_only: Whether the query row alone is wanted, as in the last layer.
    """
    attention, weighting = layer.attention, layer.attention.weighting
    inputs = read_rows(layer, rows)
    moved, size = read_with_sizes(layer, rows, change)
    sizes, sized = value_sizes(attention, size), not weighting.hard
    store, offset, centre = centred_store(attention, inputs, None)
    arrive = None
    if after is not None:
        arrived = project_value_changes(attention, read_rows(layer, after) - centre)
        arrived = beside(arrived, sizes) if sized else arrived
        arrive = spread_of(weighting, arrived)
    wanted = slice(-1, None) if query_only else slice(None)
    at, seen = one.first[wanted], one.count > 0
    queries = project_queries(attention, inputs[wanted], ANY, at)
    moved_queries = project_query_changes(attention, moved[wanted], ANY, at)
    moved_keys = project_key_changes(attention, moved, ANY, None)
    moved_values = project_value_changes(attention, moved)
    moved_values = beside(moved_values, sizes) if sized else moved_values
    visible = seen[wanted][:, None] & seen
    index = one.last if weighting.side == -1 else one.first
    count = one.count.astype(rows.dtype)
    scores = compute_scores(attention, queries, store.keys, ANY, at)
    seen_classes = (scores, store.values, index, visible, count)
    summary = weighting.lift(*seen_classes)
    summary = weighting.settle(summary, lambda lift: lift(*seen_classes))
    # Before and after, as large as they are.
    keys = jnp.abs(store.keys) + jnp.abs(moved_keys)
    keys = jnp.where(seen[:, None], keys, 0)
    asked = jnp.abs(queries) + jnp.abs(moved_queries)
    by_query, by_key = score_slopes(attention, asked, keys, ANY)
    read = inputs, moved, size
    off = (
        key_sizes(attention, by_key, *read)[:, None],
        query_sizes(attention, by_query, *(x[wanted] for x in read))[..., None],
    )
    lifted = lift_with_sizes(
        attention,
        summary,
        MovedKeys(
            index=index,
            score=scores,
            score_change=score_changes(
                attention, queries, store.keys, ANY, at, moved_queries, moved_keys
            ),
            visible=visible,
            spread=spread_of(weighting, store.values),
            carry=lambda w: contract(w, moved_values),
            count=count,
            arrive=arrive,
        ),
        jnp.hypot(*off),
    )
    heads = join_heads(weighting.read(summary) + offset[:, None])
    base, output = base_rows(layer, rows[wanted], heads)
    moved_heads = weighting.read_change(lifted)
    entering = heads_and_sizes(
        weighting, moved_heads, sizes, distances(store.values, seen)
    )
    ties = None
    if weighting.hard:
        met, found = weighting.ties(summary, at), weighting.ties_changed(lifted, at)
        assert met is not None and found is not None
        ties = met.merge(found)
    weight = jnp.where(seen[wanted], count[wanted], 0)
    size = scaled_norm(jnp.sqrt(weight) * scaled_norm(output))
    size = size / jnp.sqrt(weight.sum())
    values = jnp.where(seen[:, None], store.values, 0)
    # Rows are rounded relative to all that is written to them, what drops out of
    # changes included; of the last layer's changes alone are formed.
    whole = values
    if not query_only:
        whole = project_values(attention, inputs)
        whole = jnp.where(seen[:, None], whole, 0)
    held = jnp.where(seen, jnp.log(jnp.maximum(count, 1)), 0).max()
    scale = score_scale(attention, ANY, at)
    steps = score_rounding(attention, asked, keys, scale, ANY) + held
    return MovedClasses(
        output,
        *carry_rows(layer, base, change[wanted], *entering),
        ties,
        steps,
        row_condition(layer, rows, whole, size),
        largest_weight(summary, scores, visible)
        * written_share(layer, rows, values, output),
    )


@functools.partial(jax.jit, static_argnames="target")
def change_configurations(
    model: Transformer,
    encodings: Array,
    configurations: Configurations,
    run: Array | None,
    *,
    target: AnyTarget,
) -> tuple[Array, Array, Array, TieReport]:
    """Returns changes [b, c], the sizes that their rounding is relative to, and ties.

    Args:
        model: A transformer without masks, at its length, with a layer at least.
        encodings: The distinct position encodings [P, d].
        configurations: The configurations [b].
        run: Which of the runs with moved rows [], 0 for none.
        target: as in `exit_program`.

    Returns:
        Changes of the target [b, c], sizes [b], roundoffs of scores [b], and a report over
        all of them.
    """

    def find(one: Configurations) -> tuple[Array, Array, Array, TieReport]:
        rows = symbol_rows(model, one.symbol, encodings[one.place])
        # A class without rows is nothing that the model need be finite on.
        rows = jnp.where(one.count[:, None] > 0, rows, rows[-1])
        place = encodings[one.place[one.slot]]
        left = one.symbol[one.slot]
        moved = symbol_changes(model, left, one.substitute, place)
        change = jnp.zeros_like(rows).at[one.slot].set(moved)
        # The substituted row as one that is no substitute, to the bit.
        other = symbol_rows(model, one.substitute, place)
        after = rows.at[one.slot].set(other)
        score_steps = jnp.zeros((), model.dtype)
        embedded = model.embedding[one.symbol] + encodings[one.place]
        condition, reports = entry_condition(model, embedded), []
        sizes = jnp.abs(change)
        share = jnp.zeros((), model.dtype)
        for depth, layer in enumerate(model.layers):
            last = depth == len(model.layers) - 1
            found = move_classes(layer, rows, change, after, one, last)
            rows, change, after = found.rows, found.change, None
            sizes = found.sizes
            score_steps = jnp.maximum(score_steps, found.score_steps)
            condition = jnp.maximum(condition, found.condition)
            share = jnp.maximum(share, found.share)
            reports.append(found.ties)
        moves = move_target(model, rows[0], change[0], target, sizes[0])
        change, relative = moves
        base = jnp.maximum(1, share) if model.is_hard else share
        whole = output_size(model, rows[0], None, target)
        size = condition * relative + base * whole
        # A change of exactly zero is one where nothing that is read has moved, or no
        # decision of a hard layer noticed. Softmax of equal columns may have lost it.
        seen = relative > 0
        if not model.is_hard:
            seen = seen | (moved != 0).any()
        size = jnp.where(seen, size, 0)
        if not all(layer.attention.weighting.hard for layer in model.layers):
            least = least_size(model.dtype) * jnp.maximum(1, whole)
            size = size + jnp.where((moved != 0).any(), least, 0)
        return change, size, score_steps, merge_reports(model, reports)

    with perturbation(run, model.is_hard):
        found = jax.vmap(find)(configurations)
    change, size, score_steps, reports = found
    return change, size, score_steps, reduce_reports(reports)


def batch_size(model: Transformer, configurations: Configurations) -> int:
    """Returns how many configurations run at once: a tile of scores of all of them."""
    k = configurations.symbol.shape[1]
    per_pair = max(x.attention.num_heads * x.attention.pair_width for x in model.layers)
    room = tile_elements() // (per_pair * k * k)
    wanted = next(
        (size for size in AT_ONCE if size >= len(configurations)), AT_ONCE[-1]
    )
    return max(1, min(room, wanted))


def run_configurations(
    model: Transformer,
    encodings: Array,
    configurations: Configurations,
    *,
    length: int,
    target: AnyTarget,
    run: Array | None,
) -> Iterator[tuple[np.ndarray, np.ndarray, Ties | None]]:
    """Yields changes [b, c] and radii of batches of configurations, and the ties met.

    Args:
        model: A transformer without masks, with a layer at least.
        encodings: The distinct position encodings [P, d].
        configurations: At least one.
        length: n.
        target: as in `exit_program`.
        run: which of the runs with moved rows [], 0 for none.
    """
    model, batch = at_length(model, length), batch_size(model, configurations)
    k = configurations.symbol.shape[1]
    shared = jax.device_put((model, encodings))
    beyond = target_steps(model, target)

    def start_batch(part: Configurations) -> tuple[Configurations, Any]:
        filled = jax.device_put(jax.tree.map(lambda x: padded(x, batch), part))
        return part, change_configurations(*shared, filled, run, target=target)

    starts = range(0, len(configurations), batch)
    calls = (
        functools.partial(start_batch, configurations[start : start + batch])
        for start in starts
    )
    for part, found in ahead(calls, IN_FLIGHT, threads=False):
        found = jax.device_get(found)
        change, size, score_steps = (
            np.asarray(x, np.float64)[: len(part)] for x in found[:3]
        )
        radius = change_radius(model, k, size, score_steps, beyond)
        yield change, radius, Ties.of(found[3]) if model.is_hard else None
