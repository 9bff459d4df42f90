"""Evaluation of models with checked inputs: activations, logits and acceptance.

An accept rule states the class whose logit at the query position must reach a threshold. A
tie report states whether rounding could change the winner of a hard-attention row. A long
input's positions may be sharded over devices. Every device keeps an equal share of
consecutive positions: their rows, keys and values. A few rows of every device are gathered
at a time, each device summarises its own keys for all gathered rows, tile by tile, and the
summaries of every tile (all that attention needs of its keys) go to the device with the
row, which merges them in order of position. Shapes: D devices, n tokens, m = n / D rows of
a device (rounded up to whole tiles), h heads, k keys of a tile, r rows of a block, t tiles
of a device.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Float, Int

from jax_models.arguments import (
    choose_name,
    expect_integer,
)
from jax_models.errors import InputError, TieError
from jax_models.format.model_check import check_model
from jax_models.model.attending import KeyStore, lift_keys, project_queries, store_keys
from jax_models.model.layer import Layer
from jax_models.model.readout import Readout
from jax_models.model.rows import Affine
from jax_models.model.transformer import (
    Transformer,
    attention_input,
    check_tokens,
    combine_heads,
    forward,
    of_input,
    read_heads,
    read_logits,
    reduce_reports,
    run_layers,
    scores_per_row,
    symbol_rows,
)
from jax_models.run.blocks import MAX_KEY_TILE, fold_stacked, map_rows, row_block
from jax_models.run.mesh import (
    EVERYWHERE,
    POSITIONS,
    SHARED_OUT,
    check_agreement,
    check_mesh,
    gathered,
    place,
    written_out,
)
from jax_models.weighting import TieReport, Weighting

# The number of tiles is a multiple of this, so that 1, 2, 4 or 8 devices have the same
# tiles and merge the same summaries; eight devices have two tiles each, since a loop of one
# round is compiled in another way.
TILES_TOGETHER = 16
# Blocks of rows that are gathered at once, so that devices wait for one another rarely.
BLOCKS_TOGETHER = 16


@dataclasses.dataclass(frozen=True)
class Shares:
    """Partition of n tokens into D shares of m rows, each share into t tiles of keys."""

    length: int  # n
    devices: int  # D
    tile: int  # keys in a tile
    tiles: int  # t

    @property
    def share(self) -> int:
        """Number of rows (token positions) of a device, m."""
        return self.tile * self.tiles

    @property
    def together(self) -> int:
        """Divisor of the number of tiles of all devices, and of the rows in a block."""
        return math.lcm(TILES_TOGETHER, self.devices)

    def block(self, per_row: int) -> int:
        """Number of rows scored at once against a tile, for `per_row` scores in a row."""
        rows = row_block(self.share * self.devices, per_row)
        return self.together * math.ceil(rows / self.together)

    def own_rows(self, per_row: int) -> int:
        """Number of each device's rows gathered at once, for `per_row` scores in a row."""
        rows = BLOCKS_TOGETHER * self.block(per_row)
        # A block is a multiple of `together`, and so of D: all devices give as many rows.
        return min(rows // self.devices, self.share)

    def merged_rows(self, per_row: int) -> int:
        """Number of rows whose tiles are merged at once; equal for D = 1, 2, 4, 8."""
        return self.own_rows(per_row) * self.devices // self.together


def share_out(length: int, devices: int) -> Shares:
    """Partition of `length` tokens over `devices`; the last shares may be padded."""
    # If D divides `TILES_TOGETHER`, tiles and the order of merges are independent of D.
    together = math.lcm(TILES_TOGETHER, devices)
    tiles = together * math.ceil(length / (together * MAX_KEY_TILE))
    return Shares(length, devices, math.ceil(length / tiles), tiles // devices)


def forward_sharded(
    model: Transformer, tokens: Int[Array, "tokens"], mesh: Mesh
) -> tuple[Float[Array, "tokens width"], tuple[TieReport | None, ...]]:
    """Final activations [n, d] and each layer's tie report, computed on a mesh."""
    check_mesh(mesh)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, tokens))):
        raise InputError(
            "the forward pass over a mesh is not traced by JAX transformations; leave "
            "the mesh out, or call it outside of jit, grad and vmap"
        )
    # Model and tokens must be equal in all processes; each gets the whole results.
    check_agreement(written_out((model, tokens), mesh))
    shares = share_out(tokens.shape[0], mesh.size)
    # Positions beyond the end repeat the last row, and so does its output.
    at = np.minimum(np.arange(shares.share * mesh.size), shares.length - 1)
    model, encodings = of_input(model, tokens), None
    if model.position is not None:
        every = model.position.encode(shares.length, model.embedding_width)
        encodings = place(np.asarray(every).astype(model.dtype)[at], mesh, SHARED_OUT)
    # A device embeds only its share, whose position encodings it is given.
    bare = dataclasses.replace(model, position=None)
    bare = jax.tree.map(lambda x: place(x, mesh, EVERYWHERE), bare)
    shared_tokens = place(np.asarray(tokens)[at], mesh, SHARED_OUT)
    y, reports = gathered(_compiled(shares, mesh)(bare, shared_tokens, encodings))
    # What follows the last token repeats it.
    y, reports = jax.tree.map(jnp.asarray, (y[: shares.length], reports))
    return y, tuple(None if x is None else reduce_reports(x) for x in reports)


@functools.lru_cache(maxsize=64)
def _compiled(shares: Shares, mesh: Mesh) -> Any:
    """Compiled pass over all shares; the devices' tie reports are stacked on a first axis."""
    pass_ = jax.shard_map(
        functools.partial(_forward_share, shares),
        mesh=mesh,
        in_specs=(EVERYWHERE, SHARED_OUT, SHARED_OUT),
        out_specs=SHARED_OUT,
        check_vma=False,
    )
    return jax.jit(pass_)


def _forward_share(
    shares: Shares,
    model: Transformer,
    tokens: Int[Array, "tokens"],
    encodings: Float[Array, "tokens d_embedding"] | None,
) -> tuple[Float[Array, "tokens width"], tuple[TieReport | None, ...]]:
    """Final activations of one device's tokens, and each layer's tie report of these rows."""
    y = symbol_rows(model, tokens, encodings)
    y, reports = run_layers(
        model, y, lambda layer, y, _: _apply_share(shares, layer, y)
    )
    return y, jax.tree.map(lambda x: x[None], reports)


def _apply_share(
    shares: Shares, layer: Layer, rows: Float[Array, "rows width"]
) -> tuple[Float[Array, "rows width"], TieReport | None]:
    """The layer's output rows of one device, from its input rows, and their tie report."""
    attention, length = layer.attention, shares.length
    start = jax.lax.axis_index(POSITIONS).astype(jnp.int32) * shares.share
    index = start + jnp.arange(shares.share, dtype=jnp.int32)
    positions = jnp.minimum(index, length - 1)

    # Maps of single rows are computed by tiles too: every matrix product then has the same
    # shape for all D, and so the same rounding.
    def prepare(
        tile: tuple[Float[Array, "keys width"], Int[Array, "keys"]],
    ) -> tuple[Float[Array, "keys width"], KeyStore]:
        """Attention's input rows of a tile, with their keys and values."""
        y, at = tile
        u = attention_input(layer, y)
        return u, store_keys(attention, u, length, at)

    inputs, tiles = jax.lax.map(prepare, _tiled(shares, (rows, index)))
    index = _tiled(shares, index)

    per_row = scores_per_row(attention, shares.tile)

    def summarise_tiles(
        block: tuple[Int[Array, "rows"], Float[Array, "rows width"]],
    ) -> Any:
        """Summaries of r rows over each tile of this device, fields [r, t, h, ...]."""
        at, u = block
        queries = project_queries(attention, u, length, at)

        def lift(tile: tuple[KeyStore, Int[Array, "keys"]]) -> Any:
            keys, key_at = tile
            # Copies of the last row fill the end: as keys they are hidden.
            valid = key_at < length
            return lift_keys(attention, queries, at, keys, key_at, valid, length)

        lifted = jax.lax.map(lift, (tiles, index))
        return jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), lifted)

    def merge_tiles(
        block: tuple[Int[Array, "rows"], Any],
    ) -> tuple[Float[Array, "rows concatenated"], Any]:
        at, by_row = block
        by_tile = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), by_row)
        summary = fold_stacked(attention.weighting.merge, by_tile)
        return read_heads(attention, at, summary)

    def run(
        block: tuple[Int[Array, "rows"], Float[Array, "rows width"]],
    ) -> tuple[Float[Array, "rows concatenated"], Any]:
        everyones = jax.tree.map(
            lambda x: jax.lax.all_gather(x, POSITIONS, tiled=True), block
        )
        # Devices exchange attention's input rows [r, d] and summaries, never keys.
        here = map_rows(summarise_tiles, everyones, shares.block(per_row))
        # From all rows' summaries of the tiles here, to the own rows' of all devices' tiles.
        own = jax.tree.map(
            lambda x: jax.lax.all_to_all(
                x, POSITIONS, split_axis=0, concat_axis=1, tiled=True
            ),
            here,
        )
        return map_rows(merge_tiles, (block[0], own), shares.merged_rows(per_row))

    inputs = inputs.reshape(rows.shape)
    heads, reports = map_rows(run, (positions, inputs), shares.own_rows(per_row))
    output = jax.lax.map(
        lambda tile: combine_heads(layer, *tile), _tiled(shares, (rows, heads))
    )
    # Copies of the last row report as it does: they change nothing.
    report = None if reports is None else reduce_reports(reports)
    return output.reshape(rows.shape), report


def _tiled(shares: Shares, rows: Any) -> Any:
    """A device's rows [m, ...] as its tiles [t, k, ...]."""
    split = (shares.tiles, shares.tile)
    return jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), rows)


TieRule = Literal["error", "warn", "ignore"]


class AmbiguousTieWarning(UserWarning):
    """Warning that rounding could change which key a hard-attention row selects."""


def describe_tie(
    weightings: Sequence[Weighting],
    # the row's best score
    best: float,
    # the best score below its cell
    next_: float,
    dtype: Any,
) -> str:
    """Returns a message: why rounding may decide an ambiguous row's winner, and remedies."""

    def cells_per_rounding(weighting: Weighting) -> float:
        return weighting.score_roundoff(dtype) / weighting.resolution(dtype)

    # Of several layers the one whose cells are narrowest beside its rounding.
    finest = max(weightings, key=cells_per_rounding)
    rounding = finest.score_roundoff(dtype) * abs(best)
    width = finest.resolution(dtype)
    if rounding < width:
        return (
            f"the best score {best!r} and the next {next_!r} stand in neighbouring "
            "score cells, so rounding decides the winner; widen or shrink "
            "tie_resolution, or pass ties='warn'"
        )
    wider = "" if jnp.finfo(dtype).bits == 64 else "use float64, or "
    return (
        f"the best score {best!r} may be rounded by {rounding:.2g}, and a score cell "
        f"is no wider than that (tie_resolution = {width:g}), so rounding decides which "
        f"scores are tied; {wider}set the model's tie_resolution above {rounding:.2g}, "
        "or pass ties='warn'"
    )


def check_ties(
    model: Transformer, reports: tuple[TieReport | None, ...], ties: TieRule
) -> None:
    """Raises `TieError` or warns, by `ties`, if a layer's report has an ambiguous row."""
    choose_name("ties", ties, get_args(TieRule))
    if ties == "ignore":
        return
    for depth, report in enumerate(reports):
        if report is None or not bool(report.ambiguous):
            continue
        high, low = (float(score) for score in report.scores)
        weighting = model.layers[depth].attention.weighting
        why = describe_tie([weighting], high, low, model.dtype)
        message = f"layer {depth}, row {int(report.row)}: {why}"
        if ties == "error":
            raise TieError(message)
        warnings.warn(message, AmbiguousTieWarning, stacklevel=3)


_forward = jax.jit(forward)


def apply(
    model: Transformer,
    tokens: Any,
    *,
    ties: TieRule = "error",
    mesh: Mesh | None = None,
) -> Float[Array, "tokens width"]:
    """Returns the final activations y^(L) of a token sequence.

    Runs by blocks: memory is O(n d) beside one tile of scores, time O(n^2 d). On a mesh
    each of D devices has 1/D of both. No other row attends to the rows of `padding` symbols
    behind the last token; their own activations have no meaning.

    Args:
        model: the transformer.
        tokens: integers in [0, V) [n].
        ties: what to do about a hard-attention row whose winner rounding could change:
            "error", "warn" or "ignore". Under a JAX transformation nothing is raised.
        mesh: devices to share rows and keys out over (`device_mesh`), in one process or,
            if all of them call this alike, in many; by default one device.

    Returns:
        Activations [n, d], whole on one device.

    Raises:
        InputError: for tokens that do not fit the model, a length beyond its position
            table, a float64 model without x64, padding on a mesh, a mesh under a JAX
            transformation.
        TieError: for an ambiguous tie under ties="error".
    """
    model = check_model(model)
    tokens = check_tokens(model.vocab_size, tokens)
    there: Any = tokens
    # Only where tokens are known; this also refuses padding before a token.
    if model.padding is not None and not isinstance(tokens, Tracer):
        there = model.padding.leave(np.asarray(tokens))
    if mesh is None:
        y, reports = _forward(model, tokens)
    elif there.size < tokens.size:
        raise InputError(
            "tokens end with padding, which is not shared out over devices; leave it out"
        )
    else:
        y, reports = forward_sharded(model, tokens, mesh)
    # Under a transformation the report has no values yet.
    if not isinstance(y, Tracer):
        check_ties(model, reports, ties)
    return y


def apply_logits(
    model: Transformer,
    tokens: Any,
    *,
    ties: TieRule = "error",
    mesh: Mesh | None = None,
) -> Float[Array, "tokens classes"]:
    """Returns the read-out's logits at every position [n, classes].

    Args:
        model: a transformer with a read-out.
        tokens: integers in [0, V) [n].
        ties: as in `apply`.
        mesh: as in `apply`.

    Returns:
        Logits [n, classes].

    Raises:
        InputError: if the model has no read-out, and as in `apply`.
        TieError: as in `apply`.
    """
    model = check_model(model)
    require_readout(model, "jax_models.apply gives the final activations")
    return read_logits(model, apply(model, tokens, ties=ties, mesh=mesh))


def require_readout(
    model: Transformer,
    remedy: str = 'ask for the final activations instead (target="activation")',
) -> None:
    """Raises `InputError`, with `remedy` in the message, for a model without a read-out."""
    if model.readout is None:
        raise InputError(
            f"the model has no read-out (readout.weight), so it has no logits; {remedy}"
        )


def linear_readout(model: Transformer) -> Readout:
    """Returns the read-out of a model whose head is one affine map; refuses other heads."""
    require_readout(model)
    operations = [step.operation for step in model.head.steps]
    match operations:
        case [Affine(weight, bias)]:
            return Readout(weight, bias)
    named = ", ".join(type(x).__name__ for x in operations)
    raise InputError(
        f"the model's head is made of {named or 'nothing'}; expected one Affine map, such "
        'as a read-out: ask for target="activation", or use compute_influence'
    )


def accepts(model: Transformer, tokens: Any, *, query: int = -1) -> bool:
    """Returns whether the model accepts a string by its `accept` rule.

    Args:
        model: a transformer with a read-out and an accept rule.
        tokens: integers in [0, V) [n].
        query: the position whose logits are read, by default the last.

    Raises:
        InputError: if the model has no accept rule, for a position out of range, and as
            in `apply_logits`.
        TieError: for an ambiguous tie.
    """
    model = check_model(model)
    if model.accept is None:
        raise InputError("the model has no accept rule, so it accepts no language")
    logits = apply_logits(model, tokens)
    query = expect_integer("query", query, -len(logits), len(logits) - 1)
    return bool(logits[query, model.accept.class_] >= model.accept.threshold)
