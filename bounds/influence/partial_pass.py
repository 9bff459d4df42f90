"""Passes that form only what a substitution can move, and only what is read of it.

Everything else stands in the base pass: the rows that masks keep from the replaced
position, with their keys and values; and in the first layer, where one column is replaced,
what the others add to every row's mean (`first_layer.other_heads`).

Rows go through in tiles, of some sequences at a time, so that matrix products are large
and scores stay in a CPU's cache. Which tiles is found out while a program runs: one program
serves all positions.

Shapes: g sequences, n rows, t rows of a tile, h heads, d width, e = d_k, v = d_v.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import (
    PreparedLayer,
    other_heads,
    prepare_first,
    replace_tokens,
    replaced_columns,
    slice_rows,
)
from jax_models import Transformer
from jax_models.model.attending import (
    KeyStore,
    compute_scores,
    project_queries,
    project_values,
    store_keys,
    summarise,
)
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import Sight, sees_any, visible
from jax_models.model.pytree import register
from jax_models.model.transformer import (
    apply_layer,
    attention_input,
    combine_heads,
    embed,
    join_heads,
    read_heads,
    reduce_reports,
    scores_per_row,
    symbol_rows,
)
from jax_models.run.blocks import (
    key_tile,
    map_rows,
    row_block,
    slice_tile,
    tile_elements,
)
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport
from jax_models.weighting.base import same_position

# A sequence this short has few keys to spare.
SHORT = 256
# From and up to which row, both counted; nothing where the second is less.
Span = tuple[Any, Any]


@register
@dataclasses.dataclass(frozen=True)
class BasePass:
    """What all passes share; rows and stores only where some rows cannot move."""

    rows: tuple[
        Array, ...
    ]  # [n, d] the input of every layer, and the last one's output
    stores: tuple[KeyStore, ...]  # the keys and values of every layer
    first: PreparedLayer | None  # where the first layer goes by replaced columns
    heads: Array | None  # [n, h v] what its heads attend to
    store: KeyStore | None  # its keys and values


def by_columns(model: Transformer) -> bool:
    """Whether the first layer goes by replaced columns: where its weights are soft."""
    return not model.layers[0].attention.weighting.hard


def is_bounded(model: Transformer) -> bool:
    """Whether masks keep some rows from some positions."""
    return not all(_everywhere(layer.attention.sight) for layer in model.layers)


def _everywhere(sight: Sight) -> bool:
    return sight.before and sight.after and sight.window is None


def spans(
    sights: Sequence[Sight], length: int, changed: Span, watched: Span, least: Any = min
) -> list[Span]:
    """Returns which rows of every layer's input, and of the last one's output, are formed.

    Those that a substitution can move, of those that what is watched depends on.

    Args:
        sights: of the layers.
        length: n.
        changed: from and up to which position symbols are replaced, or arrays of them.
        watched: from and up to which row is watched.
        least: the lesser of two numbers; `jnp.minimum` of traced ones, `np.minimum` of
            arrays.
    """

    def grown(span: Span, sight: Sight, backward: bool) -> Span:
        reach = int(min(length, sight.reach))
        down = reach * (sight.before if backward else sight.after)
        up = reach * (sight.after if backward else sight.before)
        return span[0] - down, span[1] + up

    moved, read = [changed], [watched]
    for sight in sights:
        moved.append(grown(moved[-1], sight, False))
    for sight in reversed(sights):
        read.append(grown(read[-1], sight, True))
    both = zip(moved, reversed(read), strict=True)

    def greatest(a: Any, b: Any) -> Any:
        return -least(-a, -b)

    return [
        (greatest(greatest(a[0], b[0]), 0), least(least(a[1], b[1]), length - 1))
        for a, b in both
    ]


@jax.jit
def prepare_passes(model: Transformer, tokens: Array, run: Array | None) -> BasePass:
    """Returns the base pass of an input [n].

    Args:
        model: a transformer.
        tokens: the input.
        run: which of the runs with moved rows [], 0 for none.
    """
    with perturbation(run, model.is_hard):
        return _prepare(model, tokens)


def _prepare(model: Transformer, tokens: Array) -> BasePass:
    rows, stores, first, heads, store = [], [], None, None, None
    n = tokens.shape[0]
    everywhere = jnp.arange(n, dtype=jnp.int32)
    if by_columns(model):
        layer = model.layers[0]
        first = prepare_first(model, tokens, everywhere)
        offset = project_values(layer.attention, first.centre[None])
        seen = sees_any(layer.attention.sight, everywhere, n)[:, None]
        values = layer.attention.weighting.read(first.summary)
        heads = join_heads(values + jnp.where(seen, offset, 0))
        store = store_keys(layer.attention, attention_input(layer, first.rows))
    if is_bounded(model):
        y = embed(model, tokens)
        rows.append(y)
        for layer in model.layers:
            stores.append(store_keys(layer.attention, attention_input(layer, y)))
            y, _ = apply_layer(layer, y)
            rows.append(y)
    return BasePass(tuple(rows), tuple(stores), first, heads, store)


def changed_rows(
    model: Transformer,
    base: BasePass,
    tokens: Array,
    rows: Array,
    position: Array,
    symbol: Array,
    tile: int,
) -> tuple[Array, list[TieReport | None]]:
    """Returns final activations of watched rows [g, r, d] of changed inputs, and ties.

    Args:
        model: a transformer with a layer or more, as it is for this input.
        base: its base pass.
        tokens: the input [n].
        rows: positions that are watched [r].
        position: replaced positions [g].
        symbol: substitutes [g].
        tile: rows at once; n where none can be left out.
    """
    n, reports = tokens.shape[0], []
    changed = jax.vmap(lambda at, to: tokens.at[at].set(to))(position, symbol)
    # Not formed where the first layer goes by columns: nothing reads it then.
    y = jax.vmap(lambda x: embed(model, x))(changed)
    needed = spans(
        [layer.attention.sight for layer in model.layers],
        n,
        (position.min(), position.max()),
        (rows.min(), rows.max()),
        jnp.minimum,
    )
    # Of the last layer all rows that can move where all are watched, and else no other.
    alone = rows.shape[0] < n
    for depth, layer in enumerate(model.layers):
        among = rows if alone and depth == len(model.layers) - 1 else None
        tiles = Tiles(n, tile, needed[depth + 1])
        stay = base.rows[depth + 1] if base.rows else None
        if depth == 0 and base.first is not None and among is None:
            form = _column_rows(model, base, tokens, position, symbol)
            y, report = tiles.over(form, stay, position.shape[0])
        else:
            kept = base.stores[depth] if base.stores else None
            store = _changed_store(
                layer, y, kept, dataclasses.replace(tiles, span=needed[depth])
            )
            form = functools.partial(_rows_at, layer, store, y)
            if among is None:
                y, report = tiles.over(form, stay, position.shape[0])
            else:
                y, report = form(among)
        reports.append(report)
    finals = y if alone else y[:, rows]
    return finals if model.final_norm is None else model.final_norm(finals), reports


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Tiles of the rows of a span, as many as it takes; of all rows where there is one."""

    length: int
    size: int
    span: Span

    def over(
        self,
        form: Callable[[Array], tuple[Any, TieReport | None]],
        stay: Any,
        count: int,
        axis: int = 1,
    ) -> tuple[Any, TieReport | None]:
        """Returns what is formed of rows [g, ..., n, ...], and the most worrying ties.

        Args:
            form: from the positions of a tile [t] to arrays of it, and ties.
            stay: what the rows are that no tile has [..., n, ...], a pytree.
            count: g.
            axis: of the rows behind g.
        """
        if self.size >= self.length:
            return form(jnp.arange(self.length, dtype=jnp.int32))
        within = jnp.arange(self.size, dtype=jnp.int32)
        held = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), stay)
        first, last = self.span
        ties = jax.eval_shape(form, within)[1]
        if ties is not None:
            ties = TieReport.empty(ties.gap.dtype)

        def step(number: Array, so_far: Any) -> Any:
            held, ties = so_far
            start = jnp.minimum(first + number * self.size, self.length - self.size)
            found, more = form(start + within)
            held = jax.tree.map(
                lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, start, axis),
                held,
                found,
            )
            return held, ties if more is None else ties.merge(more)

        rounds = jnp.maximum(last - first + self.size, 0) // self.size
        return jax.lax.fori_loop(0, rounds, step, (held, ties))


def _column_rows(
    model: Transformer, base: BasePass, tokens: Array, position: Array, symbol: Array
) -> Callable[[Array], tuple[Array, TieReport | None]]:
    """Forms rows [g, t, d] of the first layer's output from its replaced columns."""
    layer, first, heads = model.layers[0], base.first, base.heads
    assert first is not None and heads is not None
    replaced = replace_tokens(model, tokens, first, position, symbol)
    columns = replaced_columns(first, replaced)
    places = None if first.places is None else first.places[position]
    own = symbol_rows(model, symbol, places)
    own_heads = _own_heads(layer, base, own, position)

    def form(at: Array) -> tuple[Array, None]:
        moved, _ = other_heads(layer, first, columns, at, slice_rows(first, at))
        attended = slice_tile(heads, at, 0) + moved.transpose(2, 0, 1)
        here = same_position(at, position[:, None], heads.dtype)[..., None]
        y = jnp.where(here, own[:, None], slice_tile(first.rows, at, 0))
        attended = jnp.where(here, own_heads[:, None], attended)
        return combine_heads(layer, y, attended), None

    return form


def _own_heads(layer: Layer, base: BasePass, rows: Array, position: Array) -> Array:
    """What the heads of replaced rows attend to [g, h v], their own column among it.

    Args:
        layer: the first layer.
        base: the base pass.
        rows: the layer's input that comes in [g, d].
        position: where [g].
    """
    attention, kept = layer.attention, base.store
    assert kept is not None
    n, inputs = kept.length, attention_input(layer, rows)
    queries = project_queries(attention, inputs, n, position)
    column = store_keys(attention, inputs, n, position)

    def attend(query: Array, column: KeyStore, at: Array) -> Array:
        store = jax.tree.map(lambda x, new: x.at[:, at].set(new), kept, column)
        return _attended(attention, n, n, query[:, None], at[None], store)[0]

    return jax.vmap(attend, (1, 1, 0))(queries, column, position)


def _changed_store(
    layer: Layer, y: Array, kept: KeyStore | None, tiles: Tiles
) -> KeyStore:
    """The keys and values [g, h, n, ...] of input rows [g, n, d], of a span formed anew."""

    def form(at: Array) -> tuple[KeyStore, None]:
        some = attention_input(layer, slice_tile(y, at, 1))
        of_one = functools.partial(
            store_keys, layer.attention, length=tiles.length, positions=at
        )
        return jax.vmap(of_one)(some), None

    return tiles.over(form, kept, y.shape[0], axis=2)[0]


def _rows_at(
    layer: Layer, store: KeyStore, rows: Array, at: Array
) -> tuple[Array, TieReport | None]:
    """Rows [g, t, d] of a layer's output, and their ties."""
    attention, n = layer.attention, rows.shape[1]
    y = rows if at.shape[0] == n else rows[:, at]
    inputs = attention_input(layer, y)
    queries = jax.vmap(lambda x: project_queries(attention, x, n, at))(inputs)
    per_row = scores_per_row(attention, key_tile(n))
    block = row_block(at.shape[0], per_row)
    # Under a causal mask the keys of a row, and no more than a quarter beside.
    whole = attention.sight.after or n < SHORT or key_tile(n) < n
    parts = 1 if whole else 4
    most = [math.ceil(n * part / parts) for part in range(1, parts + 1)]

    def attend(one: tuple[KeyStore, Array]) -> tuple[Array, Any]:
        of_one, asked = one

        def run(block: tuple[Array, Array]) -> tuple[Array, Any]:
            some, queries = block[0], block[1].swapaxes(0, 1)
            if attention.weighting.hard:
                summary = summarise(attention, queries, some, of_one)
                return read_heads(attention, some, summary)
            which = jnp.searchsorted(
                jnp.asarray(most, jnp.int32), some.max(), side="right"
            )
            first = [functools.partial(_attended, attention, n, x) for x in most]
            return jax.lax.switch(which, first, queries, some, of_one), None

        heads, reports = map_rows(run, (at, asked.swapaxes(0, 1)), block)
        return heads, None if reports is None else reduce_reports(reports)

    # As many sequences at once as keep a tile of scores as small as it should be.
    together = max(1, tile_elements() // (per_row * block))
    heads, ties = _mapped(attend, (store, queries), together)
    return combine_heads(layer, y, heads), ties and reduce_reports(ties)


def _attended(
    attention: Attention,
    length: int,
    count: int,
    queries: Array,
    at: Array,
    store: KeyStore,
) -> Array:
    """What rows attend to among the first keys [t, h v], softly."""
    if key_tile(length) < length:
        summary = summarise(attention, queries, at, store)
        return read_heads(attention, at, summary)[0]
    keys = jnp.arange(count, dtype=jnp.int32)
    some = store.keys[:, :count]
    scores = compute_scores(attention, queries, some, length, at, keys)
    seen = visible(attention.sight, at, keys)
    values = store.values[:, :count]
    return join_heads(attention.weighting.attend(scores, values, seen))


def _mapped(function: Callable[[Any], Any], of_each: Any, together: int) -> Any:
    """Returns a function of each entry along the first axis, some of them at once."""
    count = jax.tree.leaves(of_each)[0].shape[0]
    if together >= count:
        return jax.vmap(function)(of_each)
    batch = None if together == 1 else together
    return jax.lax.map(function, of_each, batch_size=batch)
