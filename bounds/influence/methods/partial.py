"""`partial`: passes of the changed inputs over rows that can move and are read.

As exact as `exhaustive`, with the same subtraction of outputs, in fewer operations: the
first layer goes by replaced columns (a column is the key and value of one position),
rows that cannot see the position are those of the base pass (of the unchanged input),
and the last layer computes the watched rows alone, the output rows that the target
reads. Ties are a report of how near hard attention came to a tie, None without hard
attention. A sequence is one changed input, a substitution the token replaced in it, a
tile some consecutive rows, a span a first and a last row.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from bounds.influence.blocks.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.blocks.kernel import Kernel, Part
from bounds.influence.method import Method
from bounds.influence.methods.exhaustive import Passes, batches_under_way, pass_bytes
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    other_heads,
    prepare_first,
    replace_tokens,
    slice_rows,
    update_rows,
)
from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import Span, grow, is_causal, without_token
from bounds.influence.table.layout import Chosen, choose
from bounds.readings import unsupported_layers
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
from jax_models.model.pytree import pytree
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
from jax_models.run.mesh import count_devices
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport, Tile
from jax_models.weighting.base import same_position

# Scores to a row of a matrix product: a tile has 1,024 rows on a CPU, which its matrix
# rate needs, and 65,536 on an accelerator.
SCORES_PER_ROW = 512
# Rows of a tile where masks leave rows out: half of them are formed in vain.
TILE = 64
AT_ONCE = 256
# Work that all passes share, in forward passes: two of every layer, and the first
# layer's summaries.
BASE_PASSES = 3
# Operations of a replaced column: for each number of a key or value, and for a score.
COLUMN, SCALARS = 3, 32
# Rows of all passes of a block, so that long sequences show progress pass by pass.
ROWS_PER_BLOCK = 2**14
# A sequence this short has few keys to spare.
SHORT = 256


@pytree
class BasePass:
    """Activations of the unchanged input; `rows`, `stores` empty unless `is_bounded`."""

    # the input of every layer, and the last one's output
    rows: tuple[Float[Array, "tokens width"], ...]
    stores: tuple[KeyStore, ...]  # the keys and values of every layer
    first: PreparedLayer | None  # where the first layer goes by replaced columns
    heads: (
        Float[Array, "tokens concatenated"] | None
    )  # attended values of the first layer
    store: KeyStore | None  # keys and values of the first layer


def by_columns(model: Transformer) -> bool:
    """True if the first layer goes by replaced columns, as a softmax layer does."""
    return not model.layers[0].attention.weighting.hard


def is_bounded(model: Transformer) -> bool:
    """True if some layer's mask hides some positions from some rows."""
    sights = (layer.attention.sight for layer in model.layers)
    return not all(x.before and x.after and x.window is None for x in sights)


def spans(
    sights: Sequence[Sight],
    length: int,
    changed: Span,  # first and last replaced position, or arrays of them
    watched: Span,  # first and last watched row
    numpy: Any,  # of traced numbers `jax.numpy`
) -> list[Span]:
    """Spans of rows to compute: of each layer's input, then of the last output."""
    # Rows that a substitution can move, and rows that a watched one depends on.
    moved, read = [changed], [watched]
    for sight in sights:
        moved.append(grow(moved[-1], sight, length, False))
    for sight in reversed(sights):
        read.append(grow(read[-1], sight, length, True))
    return [
        (
            numpy.maximum(numpy.maximum(a[0], b[0]), 0),
            numpy.minimum(numpy.minimum(a[1], b[1]), length - 1),
        )
        for a, b in zip(moved, reversed(read), strict=True)
    ]


@jax.jit
def prepare_passes(
    model: Transformer, tokens: Int[Array, "tokens"], run: UInt[Array, ""] | None
) -> BasePass:
    """`BasePass` of the unchanged input, which passes of changed inputs share."""
    rows, stores, first, heads, store = [], [], None, None, None
    n = tokens.shape[0]
    everywhere = jnp.arange(n, dtype=jnp.int32)
    with perturbation(run, model.is_hard):
        if by_columns(model):
            layer = model.layers[0]
            first = prepare_first(model, tokens, everywhere)
            # Values are held without the part that rows share, whose projection every row has
            # back that sees a key at all.
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
    tokens: Int[Array, "tokens"],
    rows: Int[Array, "*sequences rows"],  # of all sequences, or of each
    # position and symbol of each sequence; None: the token there is deleted
    pairs: tuple[Int[Array, "sequences"], Int[Array, "sequences"] | None],
    tile: int,  # rows at once; all where none can be left out
) -> tuple[Float[Array, "sequences rows width"], list[TieReport | None]]:
    """Final activations of the watched rows of changed inputs, and ties by layer."""
    (position, symbol), n, reports = pairs, tokens.shape[0], []
    if symbol is None:
        changed = jax.vmap(lambda at: without_token(tokens, at, n))(position)
    else:
        changed = jax.vmap(lambda at, to: tokens.at[at].set(to))(position, symbol)
    # Not formed where the first layer goes by columns: nothing reads it then.
    y = jax.vmap(lambda x: embed(model, x))(changed)
    needed = spans(
        [layer.attention.sight for layer in model.layers],
        n,
        # One span for all sequences of the call; a deletion moves all rows behind it.
        (position.min(), position.max() if symbol is not None else n - 1),
        (rows.min(), rows.max()),
        jnp,
    )
    # Of the last layer all rows that can move where all are watched, and else no other.
    alone = rows.shape[-1] < n
    for depth, layer in enumerate(model.layers):
        last = alone and depth == len(model.layers) - 1
        stay = base.rows[depth + 1] if base.rows else None
        store = None
        if depth == 0 and base.first is not None and symbol is not None and not last:
            form = _column_rows(model, base, tokens, position, symbol)
        else:
            kept = base.stores[depth] if base.stores else None
            store = _changed_store(layer, y, kept, Tiles(n, tile, needed[depth]))
            form = functools.partial(_rows_at, layer, store, y)
        if not last:
            tiles = Tiles(n, tile, needed[depth + 1])
            y, report = tiles.over(form, stay, position.shape[0])
        elif rows.ndim == 1:
            y, report = form(rows)
        else:
            each = jax.tree.map(lambda x: x[:, None], (store, y))
            y, report = jax.vmap(functools.partial(_rows_at, layer))(*each, rows)
            y, report = y[:, 0], report and reduce_reports(report)
        reports.append(report)
    if alone:
        finals = y
    elif rows.ndim == 1:
        finals = y[:, rows]
    else:
        finals = jnp.take_along_axis(y, rows[..., None], axis=1)
    return finals if model.final_norm is None else model.final_norm(finals), reports


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Tiles of `size` rows that cover `span`, or one of all rows if `size` >= `length`."""

    length: int
    size: int
    span: Span

    def over(
        self,
        # from the positions of a tile to arrays of its rows, and ties
        form: Callable[[Int[Array, "tile"]], tuple[Any, TieReport | None]],
        stay: Any,  # pytree of the rows [..., tokens, ...] that no tile forms
        count: int,  # sequences
        axis: int = 1,  # of the rows in what is formed
    ) -> tuple[Any, TieReport | None]:
        """Arrays of all rows, from `form` in tiles and `stay` elsewhere, and merged ties."""
        if self.size >= self.length:
            return form(jnp.arange(self.length, dtype=jnp.int32))
        within = jnp.arange(self.size, dtype=jnp.int32)
        held = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), stay)
        first, last = self.span
        # A loop's state has one structure from the start, so that it must be known here
        # whether ties are reported.
        ties = jax.eval_shape(form, within)[1]
        if ties is not None:
            ties = TieReport.empty(ties.gap.dtype)

        def form_tile(number: Int[Array, ""]) -> Any:
            # The last tile begins early rather than reach beyond the input; some rows are
            # then formed twice.
            start = jnp.minimum(first + number * self.size, self.length - self.size)
            return start, *form(start + within)

        # The number of tiles is found while the program runs, so that one serves all
        # positions.
        rounds = jnp.maximum(last - first + self.size, 0) // self.size
        return update_rows(form_tile, (held, ties), rounds, axis)


def _column_rows(
    model: Transformer,
    base: BasePass,
    tokens: Int[Array, "tokens"],
    position: Int[Array, "sequences"],
    symbol: Int[Array, "sequences"],
) -> Callable[
    [Int[Array, "tile"]], tuple[Float[Array, "sequences tile width"], TieReport | None]
]:
    """Function that maps positions to changed rows of the first layer's output."""
    layer, first, heads = model.layers[0], base.first, base.heads
    assert first is not None and heads is not None
    # One column of the first layer is replaced, so that the other columns' share of every
    # row's mean comes from the base pass; the replaced row alone has another query.
    columns = replace_tokens(model, tokens, first, position, symbol)
    places = None if first.places is None else first.places[position]
    own = symbol_rows(model, symbol, places)
    own_heads = _own_heads(layer, base, own, position)

    def form(
        at: Int[Array, "tile"],
    ) -> tuple[Float[Array, "sequences tile width"], None]:
        moved, _ = other_heads(layer, first, columns, at, slice_rows(first, at))
        attended = slice_tile(heads, at, 0) + moved.transpose(2, 0, 1)
        here = same_position(at, position[:, None], heads.dtype)[..., None]
        y = jnp.where(here, own[:, None], slice_tile(first.rows, at, 0))
        attended = jnp.where(here, own_heads[:, None], attended)
        return combine_heads(layer, y, attended), None

    return form


def _own_heads(
    layer: Layer,
    base: BasePass,
    rows: Float[Array, "sequences width"],
    position: Int[Array, "sequences"],
) -> Float[Array, "sequences concatenated"]:
    """Attended values of replaced rows, whose query, own key and own value change."""
    attention, kept = layer.attention, base.store
    assert kept is not None
    n, inputs = kept.length, attention_input(layer, rows)
    queries = project_queries(attention, inputs, n, position)
    column = store_keys(attention, inputs, n, position)

    def attend(
        query: Float[Array, "heads d_k"], column: KeyStore, at: Int[Array, ""]
    ) -> Float[Array, "concatenated"]:
        store = jax.tree.map(lambda x, new: x.at[:, at].set(new), kept, column)
        return _attended(attention, n, n, query[:, None], at[None], store)[0]

    return jax.vmap(attend, (1, 1, 0))(queries, column, position)


def _changed_store(
    layer: Layer,
    y: Float[Array, "sequences tokens width"],
    kept: KeyStore | None,
    tiles: Tiles,
) -> KeyStore:
    """Keys and values of changed inputs: computed in the tiles, from `kept` elsewhere."""

    def form(at: Int[Array, "tile"]) -> tuple[KeyStore, None]:
        some = attention_input(layer, slice_tile(y, at, 1))
        of_one = functools.partial(
            store_keys, layer.attention, length=tiles.length, positions=at
        )
        return jax.vmap(of_one)(some), None

    return tiles.over(form, kept, y.shape[0], axis=2)[0]


def _rows_at(
    layer: Layer,
    store: KeyStore,
    rows: Float[Array, "sequences tokens width"],
    at: Int[Array, "tile"],
) -> tuple[Float[Array, "sequences tile width"], TieReport | None]:
    """Output rows of a layer at positions `at` of changed inputs, and their ties."""
    attention, n = layer.attention, rows.shape[1]
    y = rows if at.shape[0] == n else rows[:, at]
    inputs = attention_input(layer, y)
    queries = jax.vmap(lambda x: project_queries(attention, x, n, at))(inputs)
    per_row = scores_per_row(attention, key_tile(n))
    block = row_block(at.shape[0], per_row)
    # Under a causal mask the keys of a row, and at most a quarter of all more.
    whole = attention.sight.after or n < SHORT or key_tile(n) < n
    parts = 1 if whole else 4
    most = [math.ceil(n * part / parts) for part in range(1, parts + 1)]

    def attend(
        one: tuple[KeyStore, Float[Array, "heads tile d_k"]],
    ) -> tuple[Float[Array, "tile concatenated"], Any]:
        of_one, asked = one

        def run(
            block: tuple[Int[Array, "rows"], Float[Array, "rows heads d_k"]],
        ) -> tuple[Float[Array, "rows concatenated"], Any]:
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
    if together >= y.shape[0]:
        heads, ties = jax.vmap(attend)((store, queries))
    else:
        batch = None if together == 1 else together
        heads, ties = jax.lax.map(attend, (store, queries), batch_size=batch)
    return combine_heads(layer, y, heads), ties and reduce_reports(ties)


def _attended(
    attention: Attention,
    length: int,
    count: int,
    queries: Float[Array, "heads rows d_k"],
    at: Int[Array, "rows"],
    store: KeyStore,
) -> Float[Array, "rows concatenated"]:
    """Softmax-attended values of rows that see only keys among the first `count`."""
    if key_tile(length) < length:
        summary = summarise(attention, queries, at, store)
        return read_heads(attention, at, summary)[0]
    keys = jnp.arange(count, dtype=jnp.int32)
    some = store.keys[:, :count]
    scores = compute_scores(attention, queries, some, length, at, keys)
    seen = visible(attention.sight, at, keys)
    tile = Tile(scores, store.values[:, :count], keys, seen)
    return join_heads(attention.weighting.attend(tile))


@functools.partial(jax.jit, static_argnames=("chosen", "tiling"))
def _partial_block(
    passes: Passes,
    base: BasePass,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    *,
    chosen: Chosen,
    tiling: tuple[int, int],  # sequences together, rows of a tile
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target under a block of substitutions, and the ties of their passes."""
    model, tokens, rows = passes.model, passes.tokens, passes.rows
    together, tile = tiling

    def some(pairs: tuple[Int[Array, "together"], Int[Array, "together"]]) -> Any:
        at, to = pairs
        among = at[:, None] if rows is None else rows
        if passes.deletes:
            among, to = jax.vmap(passes.rows_without)(at), None
        with perturbation(passes.run, model.is_hard):
            found, reports = changed_rows(model, base, tokens, among, (at, to), tile)
            moved = passes.differences(found, at)
        return choose(moved, chosen), merge_reports(model, reports)

    together = math.gcd(position.shape[0], together)
    # Groups run one after the other: the memory is that of one.
    groups = position.shape[0] // together
    pairs = position.reshape(groups, together), symbol.reshape(groups, together)
    if groups == 1:
        return some(jax.tree.map(lambda x: x[0], pairs))
    moved, reports = jax.lax.map(some, pairs)
    return moved.reshape(-1, *moved.shape[2:]), reduce_reports(reports)


def _tile(model: Transformer, length: int) -> int:
    return min(length, TILE) if is_bounded(model) else length


def _block_sizes(request: InfluenceRequest) -> tuple[int, int]:
    """Number of substitutions in a block, and number of these computed at a time."""
    model, n, mesh = request.model, request.tokens.size, request.mesh
    # Of each device.
    count = request.position.size if request.room is None else request.room
    count = math.ceil(count / count_devices(mesh))
    most = max(1, tile_elements() // SCORES_PER_ROW // _tile(model, n))
    suited = max(1, min(AT_ONCE, most, count))
    taken = functools.partial(_held, request)
    together = fit_block(suited, taken, request.memory_limit)
    # Evenly: 19 substitutes do not run as 32, nor 33 as 64.
    block = max(together, min(AT_ONCE, ROWS_PER_BLOCK // n))
    block = block if together == suited else together
    block = math.ceil(count / math.ceil(count / block))
    groups = math.ceil(block / together)
    together = math.ceil(block / groups)
    return groups * together, together


def _held(request: InfluenceRequest, together: int) -> float:
    """Upper bound on the bytes of the base pass and of the substitutions under way."""
    model, n = request.model, request.tokens.size
    each = pass_bytes(model, n, request.rows_each)
    return base_bytes(model, n) + batches_under_way() * together * each


@dataclasses.dataclass(frozen=True)
class Partial(Method):
    """Method "partial": passes of the rows that can change and are read, minus the base."""

    name = "partial"
    subtracts = True
    by_length = True

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Reason why the model, or a deletion, is unsupported, or None."""
        lack = unsupported_layers(request.model)
        if lack is None and request.deletes and not is_causal(request.model):
            return (
                "rows before a deleted token stay as they are only under a causal mask, "
                "where nothing depends on the length"
            )
        return lack

    def cost(self, request: InfluenceRequest) -> float:
        """Estimated cost in forward passes, from the number of rows that change."""
        model, n, rows = request.model, request.tokens.size, request.rows
        tile, watched = _tile(model, n), (rows.min(), rows.max())
        sights = [layer.attention.sight for layer in model.layers]
        alone = request.rows_each < n
        places, counts = np.unique(request.position, return_counts=True)
        watched = (places, places) if request.own else watched
        moved = (places, np.full_like(places, n - 1) if request.deletes else places)
        needed = spans(sights, n, moved, watched, np)
        tiles = [np.ceil((last - first + 1) / tile) for first, last in needed]
        formed = [np.clip(t * tile, 0, n) for t in tiles]
        # Multiplications of the rows that are formed, over those of a whole pass.
        work = whole = 0.0
        for depth, layer in enumerate(model.layers):
            attention, block = layer.attention, layer.feed_forward
            heads, d = attention.num_heads, model.width
            by_head = attention.key_width + attention.value_width
            enter, score = heads * by_head * d, heads * by_head * n
            ask = heads * attention.key_width * d
            leave = heads * attention.value_width * d + 2 * d * block.hidden
            asked = (
                request.rows_each if alone and depth == len(model.layers) - 1 else None
            )
            whole += n * enter + (asked or n) * (ask + score + leave)
            here = asked or formed[depth + 1]
            each = here * (ask + score + leave) + formed[depth] * enter
            if depth == 0 and by_columns(model) and asked is None:
                each = here * (leave + heads * (COLUMN * by_head + SCALARS))
            work += float((counts * each).sum())
        return BASE_PASSES + work / whole

    def kernel(self, request: InfluenceRequest) -> Kernel:
        """Kernel that computes blocks of substitutions by partial passes."""
        passes, ties = Passes.prepare(request)
        given = passes.model, passes.tokens, passes.run
        shared = passes, request.shared.run(prepare_passes, *given)
        block, together = _block_sizes(request)
        tiling = together, _tile(request.model, request.tokens.size)
        options = {"chosen": request.chosen, "tiling": tiling}
        # What fills the last block up keeps groups whole.
        part = Part(0, request.position.size, block, options)
        return Kernel(_partial_block, shared, (part,), ties, batches_under_way())

    def sizes(self, request: InfluenceRequest) -> BlockSizes:
        """Number of substitutions in a block, and upper bound on the bytes held."""
        block, together = _block_sizes(request)
        return BlockSizes(block, held=_held(request, together))


PARTIAL = Partial()
