"""Program of a block of substitutions through two layers, by products of matrices.

A column is the key and value at a replaced position, one for each substitution; all
columns of a block replace one symbol by one other. The query row is the watched row of
the second layer, an axis `above` that layer's heads. Each pair of a first-layer row and
a column is one number tau (share) for each head; changes of second-layer scores and
values are tau times a factor of the row times one of the column, where no neuron flips
(becomes active, or ceases to be). A column is lost where a sum loses digits, its result
is then NaN. A tile is some of the rows, computed together; the target is the watched
quantity of the output. A tie report is of hard attention, so that it is empty. Vectors
stand for the other program, `change_block`, which forms a vector for each pair.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.change_block import IncrementalState
from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    replace_tokens,
    slice_rows,
)
from bounds.influence.propagation.own_rows import product
from bounds.influence.propagation.pointwise import change_rows
from bounds.influence.table.layout import Chosen, choose
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import change_watched
from bounds.influence.two_layers.above import Above, RowMap, Sums
from bounds.influence.two_layers.columns import Columns, PairRows, contract
from bounds.influence.two_layers.flips import Flips
from jax_models.model.layer import Layer
from jax_models.model.transformer import Transformer
from jax_models.run.blocks import slice_tile
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport

# The part of all columns that may be lost before rows are summed over. Where it is larger,
# vectors of all columns cost less than products and then vectors of those.
MOST_LOST = 0.25


@functools.partial(jax.jit, static_argnames=("row_tile", "chosen"))
def product_block(
    model: Transformer,
    target: Target,
    tokens: Int[Array, "tokens"],
    state: IncrementalState,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],  # one, in place of one other
    *,
    row_tile: int,
    chosen: Chosen = None,
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Target changes by substitution, NaN if lost; empty tie report (hard attention)."""
    first, last, query = state.first, state.last, state.watched
    assert last is not None
    below, layer = model.layers
    with perturbation(state.run, equal_alike=False):
        replaced = replace_tokens(model, tokens, first, position, symbol)
        columns = Columns.of(model, first, last, replaced, query)
        maps, above = RowMap.of(below, layer), Above.of(layer, last)
        tiles = Tiles.of(first, columns, maps, above)
        sums, hopeless = _fold(below, tiles, row_tile)
        heads, lost = sums.read(maps, above, columns, tiles.neurons)
        found = change_rows(layer, last.base, columns.entering, heads)
        changes = change_watched(model, target, state.output, found)
    lost = lost | columns.lost | hopeless
    changes = jnp.where(lost[:, None, None], jnp.nan, changes)
    return choose(changes, chosen), TieReport.empty(model.dtype)


class Tiles(NamedTuple):
    """Base pass, columns and their factors, shared by all tiles of first-layer rows."""

    first: PreparedLayer
    columns: Columns
    maps: RowMap
    above: Above
    neurons: Float[Array, "heads d_ff substitutions"]  # of the columns' values
    by_neuron: Float[Array, "above d_ff substitutions"]  # score of each neuron's key
    # factors of columns: of neurons where active, of values past the block, moved queries
    scores: Float[Array, "above heads factors substitutions"]

    @staticmethod
    def of(
        first: PreparedLayer, columns: Columns, maps: RowMap, above: Above
    ) -> "Tiles":
        """`Tiles` of a block's columns, with their factors computed."""
        queries = columns.queries
        neurons = contract("hfv,hvi->hfi", maps.into, columns.values)
        by_neuron = contract("gef,gei->gfi", maps.key_hidden, queries)
        back = contract("ghev,gei->ghvi", maps.key_skip, queries)
        flat = (back * columns.values).sum(axis=2, keepdims=True)
        on = by_neuron[:, None] * neurons
        queries = jnp.broadcast_to(
            queries[:, None], (*on.shape[:2], *queries.shape[1:])
        )
        scores = jnp.concatenate([on, flat, queries], axis=2)
        return Tiles(first, columns, maps, above, neurons, by_neuron, scores)

    def add(
        self,
        rows: PairRows,
        valid: Bool[Array, "rows"],
        # of second-layer scores, by the change of the query alone
        changes: tuple[Float[Array, "rows substitutions"], ...],
        sums: Sums,
    ) -> tuple[Sums, Bool[Array, ""]]:
        """`sums` with a tile of rows added, and True if too many of its neurons may flip."""
        u = slice_tile(self.first.base.rows[self.maps.row], rows.at, 0)
        active = (u > 0).astype(u.dtype)
        z, key, value = self.maps.carry(active, rows.moved)
        active = jnp.concatenate([active, jnp.ones_like(active[:, :1])], axis=1)
        active = rows.turn[..., None] * active
        share = rows.share(self.columns)
        moved = list(changes)
        above, heads = key.shape[:2]
        for g in range(above):
            for h in range(heads):
                factors = jnp.concatenate([active[h], key[g, h]], axis=1)
                moved[g] = moved[g] + product(factors, self.scores[g, h]) * share[h]
        flips = Flips.of(u, z, rows.turn, share, self.neurons)

        moved = flips.bend_scores(tuple(moved), self.by_neuron)
        sums, new = sums.add_weights(self.above, rows.at, valid, rows.here, moved)
        pairs = []
        for g in range(above):
            by_head = []
            for h in range(heads):
                factors = jnp.concatenate([active[h], value[g, h]], axis=1)
                by_head.append(sums.pairs[g][h] + product(factors.T, new[g] * share[h]))
            pairs.append(tuple(by_head))

        bent = flips.bend_values(new, sums.flips)
        return sums._replace(pairs=tuple(pairs), flips=bent), flips.too_many


def _fold(below: Layer, tiles: Tiles, row_tile: int) -> tuple[Sums, Bool[Array, ""]]:
    """Sums over all first-layer rows, and True if they were ended early.

    Vectors take less time then: the sums end at a tile in which too many neurons may
    flip, and do not begin where many columns are lost already.
    """
    columns, above, n = tiles.columns, tiles.above, tiles.first.store.length
    hopeless = columns.lost.mean(dtype=columns.values.dtype) > MOST_LOST
    size = min(row_tile, n)
    within = jnp.arange(size, dtype=jnp.int32)

    def step(
        given: tuple[Int[Array, ""], Sums, Bool[Array, ""]],
    ) -> tuple[Int[Array, ""], Sums, Bool[Array, ""]]:
        begin, sums, _ = given
        at = jnp.minimum(begin, n - size) + within
        valid = at >= begin
        changes = tuple(
            product(slice_tile(keys, at, 0), change)
            for keys, change in zip(above.keys, columns.query_change, strict=True)
        )
        rows = PairRows.of(below, tiles.first, columns, at, slice_rows(tiles.first, at))

        def add(sums: Sums) -> tuple[Sums, Bool[Array, ""]]:
            return tiles.add(rows, valid, changes, sums)

        def add_unseen(sums: Sums) -> tuple[Sums, Bool[Array, ""]]:
            sums, _ = sums.add_weights(above, at, valid, rows.here, changes)
            return sums, jnp.zeros((), bool)

        if below.attention.sight.everything:
            sums, hopeless = add(sums)
        else:
            sums, hopeless = jax.lax.cond(rows.seen.any(), add, add_unseen, sums)
        return begin + size, sums, hopeless

    sums = Sums.zero(tiles.maps, columns.position.shape[0])
    _, sums, hopeless = jax.lax.while_loop(
        lambda given: (given[0] < n) & ~given[2],
        step,
        (jnp.int32(0), sums, hopeless),
    )
    return sums, hopeless
