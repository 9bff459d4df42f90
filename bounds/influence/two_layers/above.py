"""Changes of the second layer's query row, by sums over the first layer's rows.

The query row is the row whose output is watched; an axis `above` is that of the second
layer's heads. A column is the key and value at a replaced position, one for each
substitution. A pair (row j, column i) has one number tau for each first-layer head: row
j's attended value changes by tau (e^min(s, 0) dv + E (v_i - b_j)), with s the change of
j's score, E = sign(s) (1 - e^-|s|), v_i and dv the column's value and its change, b_j
the old attended value. A neuron flips where it becomes active, or ceases to be. A sum
has lost digits where it is far smaller than its largest term. A tile is some of the
first layer's rows, computed together.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.own_rows import LOSS, product
from bounds.influence.propagation.pointwise import relu_block
from bounds.influence.propagation.query_row import QueryRow
from bounds.influence.two_layers.columns import Columns, contract
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.run.blocks import slice_tile
from jax_models.weighting.exponentials import exp_and_expm1


class RowMap(NamedTuple):
    """Maps from changes of first-layer heads to neurons, second-layer keys and values."""

    row: str  # name of the neurons' input
    into: Float[Array, "heads d_ff d_v"]  # W_1 W_O
    key: Float[Array, "above d_k width"]
    value: Float[Array, "above width_v width"]
    key_hidden: Float[Array, "above d_k d_ff"]  # K W_2
    value_hidden: Float[Array, "above width_v d_ff"]
    key_skip: Float[Array, "above heads d_k d_v"]  # K W_O
    value_skip: Float[Array, "above heads width_v d_v"]

    @staticmethod
    def of(below: Layer, layer: Layer) -> "RowMap":
        """`RowMap` from the layer `below`, which has a ReLU block, to the second layer."""
        block, attention = relu_block(below), layer.attention
        assert block is not None
        row, w1, w2, skip = block
        if skip is None:
            skip = jnp.zeros((w2.shape[0], w1.shape[1]), w2.dtype)
        into, skip = (
            x.reshape(x.shape[0], below.attention.num_heads, -1).swapaxes(0, 1)
            for x in (w1, skip)
        )
        key, value = attention.key_by_head, attention.value_by_head
        return RowMap(
            *(row, into, key, value, product(key, w2), product(value, w2)),
            *(contract("gwd,hdv->ghwv", x, skip) for x in (key, value)),
        )

    def carry(
        self, active: Float[Array, "rows d_ff"], heads: Float[Array, "heads rows d_v"]
    ) -> tuple[
        Float[Array, "heads rows d_ff"],
        Float[Array, "above heads rows d_k"],
        Float[Array, "above heads rows width_v"],
    ]:
        """Changes of neuron inputs, and second-layer keys and values if no neuron flips."""
        neurons = contract("hfv,hjv->hjf", self.into, heads)
        on = active * neurons
        key = contract("ghev,hjv->ghje", self.key_skip, heads)
        value = contract("ghwv,hjv->ghjw", self.value_skip, heads)
        key = key + contract("gef,hjf->ghje", self.key_hidden, on)
        return neurons, key, value + contract("gwf,hjf->ghjw", self.value_hidden, on)


class Above(NamedTuple):
    """Second-layer keys and values of all first-layer rows, with the query row's weights.

    The weight of a row is old e^offset: `old` is the weight itself (0 where the query
    row does not see the row) and `offset` 0, unless the weight underflows; then `old`
    is 1.
    """

    old: Float[Array, "above tokens"]
    offset: Float[Array, "above tokens"]  # 0 where the weight is a normal number
    keys: Float[Array, "above tokens d_k"]  # less their weighted mean
    values: Float[Array, "above width_v+1 tokens"]  # less their mean; then 1

    @staticmethod
    def of(layer: Layer, last: QueryRow) -> "Above":
        """`Above` of the second layer in the base pass, that of the unchanged input."""
        attention, summary, n = layer.attention, last.summary, last.rows.shape[0]
        at = jnp.arange(n, dtype=jnp.int32)
        seen = visible(attention.sight, last.position, at)
        log_old = last.scores[:, 0] - summary.top_score - summary.lse_above_top
        weight = jnp.exp(log_old)
        small = seen & (weight < jnp.finfo(weight.dtype).tiny)
        weight = jnp.where(seen & ~small, weight, 0)
        keys = last.keys - product(weight[:, None], last.keys)
        inputs = last.inputs - summary.top_value
        is_top = (at == summary.top_index)[..., None]
        inputs = jnp.where(is_top, 0, inputs) - summary.above_top
        values = contract("gwd,gjd->gwj", attention.value_by_head, inputs)
        values = jnp.concatenate([values, jnp.ones_like(values[:, :1])], axis=1)
        old, offset = jnp.where(small, 1, weight), jnp.where(small, log_old, 0)
        return Above(old, offset, keys, values)


def new_weights(
    old: Float[Array, "*#scores"],
    offset: Float[Array, "*#scores"],
    change: Float[Array, "*scores"],
) -> tuple[Float[Array, "*scores"], Float[Array, "*scores"]]:
    """New weights a e^d, not normalised, of old a and score changes d; and a (e^d - 1)."""
    raised, gained = exp_and_expm1(change + offset)
    # An old weight that is no normal number counts as 0.
    return old * raised, old * jnp.where(offset < 0, raised, gained)


class Sums(NamedTuple):
    """Sums over rows j, with second-layer weights a, score changes d and w = a e^d."""

    # w tau times factors of rows: E where a neuron is active, E, then changes of values
    pairs: tuple[tuple[Float[Array, "factors substitutions"], ...], ...]
    flips: Float[Array, "above d_ff substitutions"]  # w times effects of flips
    # a (e^d - 1) times `Above.values`
    moved: Float[Array, "above width_v+1 substitutions"]

    @staticmethod
    def zero(maps: RowMap, count: int) -> "Sums":
        """Sums over no rows, all 0, for `count` substitutions."""
        above, heads, width, _ = maps.value_skip.shape
        dtype, hidden = maps.into.dtype, maps.into.shape[1]
        factors = hidden + 1 + width
        one = jnp.zeros((factors, count), dtype)
        return Sums(
            ((one,) * heads,) * above,
            jnp.zeros((above, hidden, count), dtype),
            jnp.zeros((above, width + 1, count), dtype),
        )

    def add_weights(
        self,
        above: Above,
        at: Int[Array, "rows"],
        valid: Bool[Array, "rows"],
        here: Bool[
            Array, "rows substitutions"
        ],  # True for the replaced row, added apart
        changes: tuple[Float[Array, "rows substitutions"], ...],  # of scores, by head
    ) -> tuple["Sums", tuple[Float[Array, "rows substitutions"], ...]]:
        """Sums with `moved` of a tile's rows added, and new weights w of these rows."""
        new, moved = [], []
        for g, change in enumerate(changes):
            old, offset = (
                jnp.where(valid, slice_tile(x[g], at, 0), 0)[:, None]
                for x in (above.old, above.offset)
            )
            weight, gained = new_weights(old, offset, change)
            new.append(weight)
            gained = jnp.where(here, 0, gained)
            moved.append(product(slice_tile(above.values[g], at, 1), gained))
        return self._replace(moved=self.moved + jnp.stack(moved)), tuple(new)

    def read(
        self,
        maps: RowMap,
        above: Above,
        columns: Columns,
        neurons: Float[Array, "heads d_ff substitutions"],  # of the columns' values
    ) -> tuple[
        Float[Array, "substitutions concatenated"], Bool[Array, "substitutions"]
    ]:
        """Changes of the query row's attended values, and mask of sums that lost digits."""
        at, hidden = columns.position, maps.into.shape[1]
        own_key = contract("gwd,id->gwi", maps.key, columns.own)
        own_value = contract("gwd,id->gwi", maps.value, columns.own)
        change = (columns.query_change * above.keys[:, at].swapaxes(1, 2)).sum(axis=1)
        change = change + (columns.queries * own_key).sum(axis=1)
        new, gained = new_weights(above.old[:, at], above.offset[:, at], change)
        moved = self.moved + gained[:, None] * above.values[:, :, at]
        sums = jnp.stack([jnp.stack(x) for x in self.pairs])
        on = (sums[:, :, :hidden] * neurons).sum(axis=1)
        flat = sums[:, :, hidden : hidden + 1] * columns.values
        parts = (
            moved[:, :-1],
            new[:, None] * own_value,
            contract("gwf,gfi->gwi", maps.value_hidden, on),
            contract("gwf,gfi->gwi", maps.value_hidden, self.flips),
            contract("ghwv,ghvi->gwi", maps.value_skip, flat),
            sums[:, :, hidden + 1 :].sum(axis=1),
        )
        total = 1 + moved[:, -1]
        result = sum(parts[1:], parts[0])
        most = jnp.abs(jnp.stack(parts)).max(axis=(0, 1, 2))
        size = jnp.abs(result).max(axis=(0, 1))
        # Comparisons with a NaN are false.
        kept = (total > 0.5).all(axis=0) & (size * LOSS >= most) & jnp.isfinite(size)
        heads = (result / total[:, None]).reshape(-1, at.shape[0]).T
        return heads, ~kept
