"""Change propagation through layers of classes: k rows represent all n.

A class is a set of equal rows, with a count of them. Every class's row moves: in each
layer its query and all keys and values, in change form, with the count of each class in
the sums over keys. The replaced row is a class of one row that changes, so counts are
the same before and after. No two outputs are subtracted, whatever the depth. A
*configuration* is an input as classes, with one substitution (replaced token), the
target the watched quantity of the output. A tie report holds how near hard attention
came to a tie, and is None for a softmax layer.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt

from bounds.influence.blocks.prefetch import prefetch
from bounds.influence.inputs.classes import Configurations
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.propagation.first_layer import centred_store
from bounds.influence.propagation.pointwise import base_rows, change_rows, read_change
from bounds.influence.result import Ties
from bounds.influence.substitution import padded
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import change_watched
from jax_models.model.attending import (
    compute_scores,
    project_key_changes,
    project_queries,
    project_query_changes,
    project_value_changes,
    score_changes,
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
from jax_models.weighting import MovedKeys, TieReport, Tile, contract, spread_of

# Configurations at once: few sizes, so that few programs are compiled; more than these
# leave the cache.
AT_ONCE = (16, 128, 1024)
# Batches under way at a time.
IN_FLIGHT = 2
# A length for temperatures that are numbers, and do not depend on the length.
ANY = 1


def move_classes(
    layer: Layer,  # its temperature a number (`at_length`)
    rows: Float[Array, "classes width"],
    change: Float[Array, "classes width"],
    # Changed rows, where they are known better than as sums.
    after: Float[Array, "classes width"] | None,
    one: Configurations,
    query_only: bool,  # as in the last layer
) -> tuple[Float[Array, "rows width"], Float[Array, "rows width"], TieReport | None]:
    """Base output rows of classes in one layer, their changes, and a tie report."""
    attention, weighting = layer.attention, layer.attention.weighting
    inputs = read_rows(layer, rows)
    moved = read_change(layer, rows, change)
    store, offset, centre = centred_store(attention, inputs, None)
    arrive = None
    if after is not None:
        arrived = project_value_changes(attention, read_rows(layer, after) - centre)
        arrive = spread_of(weighting, arrived)
    wanted = slice(-1, None) if query_only else slice(None)
    at, seen = one.first[wanted], one.count > 0
    queries = project_queries(attention, inputs[wanted], ANY, at)
    moved_queries = project_query_changes(attention, moved[wanted], ANY, at)
    moved_keys = project_key_changes(attention, moved, ANY, None)
    moved_values = project_value_changes(attention, moved)
    visible = seen[wanted][:, None] & seen
    index = one.last if weighting.side == -1 else one.first
    count = one.count.astype(rows.dtype)
    scores = compute_scores(attention, queries, store.keys, ANY, at)
    if not weighting.hard:
        # Beside a large score the logarithm of a count would lose its digits.
        top = scores.max(axis=-1, where=visible, initial=-jnp.inf, keepdims=True)
        scores = scores - jnp.where(top == -jnp.inf, 0.0, top)
    summary = weighting.lift_all(Tile(scores, store.values, index, visible, count))
    lifted = weighting.lift_change(
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
    )
    heads = join_heads(weighting.read(summary) + offset[:, None])
    base, output = base_rows(layer, rows[wanted], heads)
    entering = join_heads(weighting.read_change(lifted))
    ties = None
    if weighting.hard:
        met, found = weighting.ties(summary, at), weighting.ties_changed(lifted, at)
        assert met is not None and found is not None
        ties = met.merge(found)
    return output, change_rows(layer, base, change[wanted], entering), ties


@jax.jit
def change_configurations(
    model: Transformer,
    target: Target,
    encodings: Float[Array, "encodings width"],
    configurations: Configurations,
    run: UInt[Array, ""] | None,
) -> tuple[Float[Array, "configurations entries"], TieReport]:
    """Change of the target by each configuration's substitution, and one tie report."""

    def find(one: Configurations) -> tuple[Float[Array, "..."], TieReport]:
        rows = symbol_rows(model, one.symbol, encodings[one.place])
        # A class without rows is nothing that the model need be finite on.
        rows = jnp.where(one.count[:, None] > 0, rows, rows[-1])
        place = encodings[one.place[one.slot]]
        left = one.symbol[one.slot]
        moved = symbol_changes(model, left, one.substitute, place)
        change = jnp.zeros_like(rows).at[one.slot].set(moved)
        # The substituted row as one that is no substitute, to the bit.
        other = symbol_rows(model, one.substitute, place)
        after, reports = rows.at[one.slot].set(other), []
        for depth, layer in enumerate(model.layers):
            last = depth == len(model.layers) - 1
            rows, change, ties = move_classes(layer, rows, change, after, one, last)
            after = None
            reports.append(ties)
        moved = change_watched(model, target, rows[0], change[:1])
        return moved[0, 0], merge_reports(model, reports)

    # Run 0 moves nothing.
    with perturbation(run, model.is_hard):
        changes, reports = jax.vmap(find)(configurations)
    return changes, reduce_reports(reports)


def run_configurations(
    model: Transformer,
    encodings: Float[Any, "encodings width"],
    configurations: Configurations,
    *,
    length: int,
    target: Target,
    run: UInt[Array, ""] | None,
) -> Iterator[tuple[Float[np.ndarray, "configurations entries"], Ties | None]]:
    """Yields by batch of configurations: changes of the target, and ties."""
    model, k = at_length(model, length), configurations.symbol.shape[1]
    # One at a time, or as many as have scores within a tile.
    per_pair = max(x.attention.num_heads * x.attention.pair_width for x in model.layers)
    room = tile_elements() // (per_pair * k * k)
    sizes = (size for size in AT_ONCE if size >= len(configurations))
    batch = max(1, min(room, next(sizes, AT_ONCE[-1])))
    shared = jax.device_put((model, target, encodings))

    def start_batch(part: Configurations) -> tuple[Configurations, Any]:
        filled = jax.device_put(jax.tree.map(lambda x: padded(x, batch), part))
        return part, change_configurations(*shared, filled, run)

    starts = range(0, len(configurations), batch)
    calls = (
        functools.partial(start_batch, configurations[start : start + batch])
        for start in starts
    )
    for part, found in prefetch(calls, IN_FLIGHT, threads=False):
        changes, ties = jax.device_get(found)
        yield changes[: len(part)], Ties.of(ties) if model.is_hard else None
