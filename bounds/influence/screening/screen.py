"""The screen: an estimate of every influence and its error bound, in O(n d^2) each.

    change of the target = estimate + error,   |error| <= R,

where n is the number of tokens, d the width, and the target the watched quantity of the
model's output, with entries `classes`. A substitution replaces one token; between
layers it changes rows by known vectors, and by unknown ones of which only a norm bound
is held. The estimate is the known change of the target and, to first order, the effect
of the unknown changes. Envelopes bound attention weights for groups of rows; a level is
a fineness of these groups. The base pass is that of the unchanged input; the adjoint
pass carries the target's derivatives back through the layers.

Source: docs/screened.md, section 2, with the identity and its proof.
"""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    other_rows,
    prepare_first,
    prepare_layer,
    replace_tokens,
    take_rows,
)
from bounds.influence.propagation.own_rows import own_rows
from bounds.influence.screening.defect import Moved, defect
from bounds.influence.screening.envelopes import Envelopes, make_envelopes
from bounds.influence.screening.layer_base import ScreenedLayer, make_screened_layer
from bounds.influence.screening.middle_layer import MiddleLayer, screen_layer
from bounds.influence.screening.moved_row import KnownRow, carry_row
from bounds.influence.screening.replaced_column import (
    Inputs,
    MovedColumns,
    State,
    move_columns,
    read_inputs,
)
from bounds.influence.screening.row_map import LastReads
from bounds.influence.targets.change import change_target, target_map
from bounds.numbers.norms import spectral_norms
from bounds.readings import slope
from jax_models.model.layer import Layer
from jax_models.model.mask import Sight
from jax_models.model.pytree import pytree
from jax_models.model.transformer import Transformer
from jax_models.run.blocks import map_rows

# Stretches of rows that share factors under a mask; each a multiple of the shortest.
STRETCHES, SHORTEST = 16, 32


def screen_last_row(
    model: Transformer,
    base: ScreenedLayer,
    state: State,
    query: Int[Array, ""],
    target: str,
    row_tile: int,
) -> tuple[Float[Array, "classes substitutions"], Float[Array, "substitutions"]]:
    """Known change of the target, and the last layer's term of the error bound R."""
    layer, prepared = model.layers[-1], base.prepared
    inputs = read_inputs(layer, prepared.rows, state)
    moved = move_columns(layer.attention, inputs, base.map_norms)
    reader = LastReads(layer, prepared.queries[:, 0])
    unknown = _unknown_columns(reader, state, inputs)
    moved = MovedColumns(moved.key, moved.value, *unknown)
    row = KnownRow.of(layer.attention, prepared.store, inputs, base.by_row, query[None])
    own = state.known[query].T, state.unknown[query]
    found = carry_row(layer, base.by_row, row, own, moved, row_tile)
    rest = found.defect + (base.input_weight[:, None] * inputs.defect).sum(axis=0)
    final = prepared.output[0]
    change = change_target(model, target, final, found.change)[1].T
    if model.final_norm is not None:
        after = Moved(final[None], found.change.T[None], found.unknown[None])
        beyond = defect(model.final_norm, after)[0]
        rest = rest + spectral_norms(target_map(model, target)) * beyond
    return change, rest


def _unknown_columns(
    reader: LastReads, state: State, inputs: Inputs
) -> Float[Array, "3 heads columns substitutions"]:
    """Norm bounds on unknown changes of last-layer keys, values and query scores."""
    norms = reader.map_norms[:, None, None]
    found = norms * inputs.unknown
    # By the parts of an unknown change where they are known, of the replaced row by its norm.
    if state.reads is not None:
        reads = state.reads.swapaxes(0, 1) + norms * inputs.defect
        found = jnp.where(inputs.here, found, jnp.minimum(found, reads))
    return found.reshape(3, -1, *found.shape[1:])


@pytree
class ScreenBase:
    """Results of base pass and adjoint pass, by layer."""

    first: PreparedLayer
    middle: tuple[ScreenedLayer, ...]
    last: ScreenedLayer


@pytree
class ScreenLevel:
    """Model and input, with their passes and the envelopes of one level."""

    model: Transformer
    tokens: Int[Array, "tokens"]
    base: ScreenBase
    envelopes: tuple[Envelopes, ...]  # of the layers between first and last


@pytree
class ScreenedBlock:
    """Estimated changes of the target and error bounds of a block of substitutions."""

    change: Float[Array, "substitutions classes"]  # estimated change of the target
    error: Float[Array, "substitutions"]  # R


@jax.jit
def _prepare_rows(
    model: Transformer, tokens: Int[Array, "tokens"]
) -> tuple[PreparedLayer, ...]:
    everywhere = jnp.arange(tokens.shape[0], dtype=jnp.int32)
    prepare = lambda below, layer: prepare_layer(layer, below.output, everywhere)
    first = prepare_first(model, tokens, everywhere)
    return tuple(itertools.accumulate(model.layers[1:-1], prepare, initial=first))


@functools.partial(jax.jit, static_argnames="target")
def _prepare_last(
    model: Transformer,
    rows: Float[Array, "tokens width"],
    query: Int[Array, "1"],
    target: str,
) -> tuple[ScreenedLayer, Float[Array, "tokens classes width"]]:
    layer = model.layers[-1]
    prepared = prepare_layer(layer, rows, query)
    cotangents = target_map(model, target)[None]
    if model.final_norm is not None:
        cotangents = slope(model.final_norm, (prepared.output,), cotangents)[0]
    return make_screened_layer(layer, prepared, query, cotangents)


def prepare_screen(
    model: Transformer, tokens: Int[Array, "tokens"], query: int, target: str
) -> ScreenBase:
    """Base and adjoint passes of a model of at least two layers."""
    bases = _prepare_rows(model, tokens)
    at = jnp.asarray([query], jnp.int32)
    last, cotangents = _prepare_last(model, bases[-1].output, at, target)
    everywhere, middle = jnp.arange(tokens.shape[0], dtype=jnp.int32), []
    layers = model.layers[1:-1]
    reader = LastReads(model.layers[-1], last.prepared.queries[:, 0])
    for layer, prepared in zip(layers[::-1], bases[:0:-1], strict=True):
        known = (layer, prepared, everywhere, cotangents)
        # From the last to the first: the first of these alone is read by the last layer.
        base, cotangents = make_screened_layer(*known, None if middle else reader)
        middle.append(base)
    return ScreenBase(bases[0], tuple(middle[::-1]), last)


def prepare_envelopes(
    model: Transformer, base: ScreenBase, groups: int, rank: int
) -> tuple[Envelopes, ...]:
    """`Envelopes` of inner layers, with low-rank factors of weights if `rank` > 0."""
    n = base.first.store.length

    def envelopes(layer: Layer, one: ScreenedLayer) -> Envelopes:
        stretch = n
        # Few terms do not follow the edge of a mask through all rows.
        if not layer.attention.sight.everything:
            stretch = max(1, math.ceil(n / (STRETCHES * SHORTEST))) * SHORTEST
        known = layer.attention, one.prepared, one.by_row.statistics
        return make_envelopes(*known, groups, rank, stretch)

    return tuple(map(envelopes, model.layers[1:-1], base.middle))


def screen_states(
    level: ScreenLevel,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    *,
    query: int,
    target: str,
    row_tile: int,
) -> tuple[ScreenedBlock, tuple[State, ...]]:
    """Estimates of a block of substitutions; changes of input rows of layers 2, 3 on."""
    model, base = level.model, level.base
    states = [enter(level, position, symbol, row_tile)]
    zeros = jnp.zeros(position.shape, model.dtype)
    error, estimate = zeros, jnp.zeros((), model.dtype)
    sights = [model.layers[0].attention.sight]
    parts = model.layers[1:-1], base.middle, level.envelopes
    for one in map(MiddleLayer, *parts):
        sights.append(one.layer.attention.sight)
        # After the first layer all changes are known exactly.
        state, exact = states[-1], len(states) == 1
        found = screen_layer(one, state, reached(sights), row_tile, exact)
        states.append(found[0])
        estimate, error = estimate + found[1], error + found[2]
    watched = jnp.int32(query), target, row_tile
    known, rest = screen_last_row(model, base.last, states[-1], *watched)
    return ScreenedBlock((known + estimate).T, error + rest), tuple(states)


@functools.partial(jax.jit, static_argnames=("query", "target", "row_tile"))
def screen_block(*arguments: Any, **options: Any) -> tuple[ScreenedBlock, None]:
    """Estimates of `screen_states`, compiled; None, as a screen reports no ties."""
    return screen_states(*arguments, **options)[0], None


def enter(
    level: ScreenLevel,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    row_tile: int,
) -> State:
    """Exact changes of the first layer's output rows, by each substitution."""
    model, tokens, first = level.model, level.tokens, level.base.first
    layer = model.layers[0]
    replaced = replace_tokens(model, tokens, first, position, symbol)
    own, _ = own_rows(layer, first, replaced, position)
    run = lambda at: other_rows(layer, first, replaced, at, take_rows(first, at))[0]
    everywhere = jnp.arange(tokens.shape[0], dtype=jnp.int32)
    known = map_rows(run, everywhere, row_tile)
    zeros = jnp.zeros((tokens.shape[0], position.shape[0]), model.dtype)
    return State(known, zeros, own.T, zeros[0], position)


def reached(sights: list[Sight]) -> tuple[bool, bool]:
    """Flags: rows before, and rows after, a replaced row can change under the masks."""
    return any(one.after for one in sights), any(one.before for one in sights)
