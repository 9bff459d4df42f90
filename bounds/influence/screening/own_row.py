"""Row i itself in a middle layer: its reference z, and how far from it the row may be.

Source: docs/screened.md, section 2.9. Shapes: h heads, i substitutions, n columns.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.activation import steepest
from bounds.influence.pointwise import change_rows
from bounds.influence.screening.layer_base import ScreenedLayer
from bounds.influence.screening.moved_row import (
    BaseRow,
    Unknown,
    bound_row,
    configure_row,
    tiles_of,
)
from bounds.influence.screening.row_map import entering_norms
from bounds.influence.screening.softmax_defect import deviations, norm_defect
from bounds.influence.screening.state import Inputs, State
from bounds.matrix_norm import spectral_norms
from jax_models.attention import Attention, KeyStore, project_query_changes
from jax_models.blocks import fold_tiles
from jax_models.layer import Layer
from jax_models.pytree import register
from jax_models.transformer import join_heads
from jax_models.weighting import contract

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class MovedOwn:
    """Row i after the layer, and what the screen owes to it."""

    change: Array  # [d, i] of the reference
    unknown: Array  # [i] distance of the row from it
    linear: Array  # [h v, i] base derivative of row i's heads by the known changes
    defect: Array  # [i] what the unknown changes of and at row i add to the error


def move_own_row(
    layer: Layer,
    base: ScreenedLayer,
    state: State,
    inputs: Inputs,
    position: Array,
    row_tile: int,
    exact: bool,
) -> MovedOwn:
    """Returns row i after a middle layer.

    Args:
        layer: the layer.
        base: its base and adjoint pass.
        state: of its input rows.
        inputs: the changes of what attention reads.
        position: the replaced positions [i].
        row_tile: rows at once.
        exact: whether all changes of the input rows are known.
    """
    attention, prepared = layer.attention, base.prepared
    n, at = prepared.store.length, jnp.arange(position.shape[0])
    row = BaseRow(
        position,
        prepared.queries[:, position],
        jax.tree.map(lambda x: x[:, position], prepared.summary),
        base.statistics.mean_key[position].swapaxes(0, 1),
    )
    own_input = inputs.change[position, :, at]
    query_change = project_query_changes(attention, own_input, n, position)
    known = (attention, row, query_change, prepared.store, inputs, position, row_tile)
    configuration = configure_row(*known)
    base_row = jax.tree.map(lambda x: x[position], prepared.base)
    heads = join_heads(configuration.heads)
    change = change_rows(layer, base_row, state.own.T, heads).T
    linear = base_response(attention, row, prepared.store, inputs, position, row_tile)
    if exact:
        nothing = jnp.zeros_like(state.own_unknown)
        return MovedOwn(change, nothing, linear, nothing)
    own, own_defect = inputs.unknown[position, at], inputs.defect[position, at]
    query_norm = base.map_norms[2][:, None] / base.query_scale[position]
    unknown = Unknown(query_norm * own, *base.map_norms[:2])
    bounds = bound_row(*known, configuration, unknown)
    beyond = reach_row(layer, base_row, state, heads, bounds.moves)
    # The rest of what the base derivative says of row i, and of what the norms leave.
    linear_unknown = bounds.linear
    if layer.layer_norm == "pre":
        both = dataclasses.replace(inputs, unknown=inputs.unknown + inputs.defect)
        linear_unknown = bound_row(
            *known[:4], both, position, row_tile, configuration, unknown
        ).linear
    defect = (
        base.rows.out_weight[position] * beyond
        + base.row_weight[position] * state.own_unknown
        + base.query_weight[position] * (own + own_defect)
        + (base.head_weight[position].T * linear_unknown).sum(axis=0)
    )
    return MovedOwn(change, beyond, linear, defect)


def base_response(
    attention: Attention,
    row: BaseRow,
    store: KeyStore,
    inputs: Inputs,
    position: Array,
    tile: int,
) -> Array:
    """Returns the base derivative of row i's heads by the others' known changes.

    sum_m a_im [W_v x_m + (q_i . W_k x_m)(v_m - b_i)] over m != i, as [h v, i].

    Args:
        attention: the sublayer.
        row: the base of row i.
        store: base keys and values.
        inputs: changes of what attention reads.
        position: the replaced positions [i].
        tile: columns at once.
    """
    apart = dataclasses.replace(inputs, change=inputs.others)
    unmoved = jnp.zeros_like(row.query)
    columns = tiles_of(attention, row, unmoved, store, apart, position)

    def lift(at: Array, valid: Array) -> tuple[Array, Array, Array]:
        here = columns(at, valid)
        scored = here.weights * here.score_change
        return (
            here.rows.weighted(here.weights),
            contract(scored, here.values),
            scored.sum(axis=-1),
        )

    moved, read, total = fold_tiles(
        lift, lambda a, b: jax.tree.map(jnp.add, a, b), store.length, tile
    )
    values = jnp.einsum("hvd,hid->hiv", attention.value, moved, precision=HIGHEST)
    heads = values + read - total[..., None] * row.summary.mean
    return join_heads(heads).T


def reach_row(
    layer: Layer, base_row, state: State, heads: Array, further: Array
) -> Array:
    """Returns how far row i may be from its reference after the layer [i].

    Lipschitz bounds of the row map along any path: norms by the least deviation on it.

    Args:
        layer: the layer.
        base_row: base quantities of row i [i, ...].
        state: of the layer's input rows.
        heads: known change of the heads [i, h v].
        further: the most that the heads move beyond it [h, i].
    """
    block = layer.feed_forward
    sizes = [spectral_norms(w) for w in (block.w1, block.w2)]
    gain = steepest(block.bend) * sizes[0] * sizes[1]
    row = state.own_unknown
    if layer.combine == "concat":
        together = jnp.sqrt(row**2 + (further**2).sum(axis=0))
        return row + gain * together
    assert layer.attention.output is not None
    reach = jnp.tensordot(
        entering_norms(layer),
        jnp.concatenate([row[None], further]),
        axes=1,
        precision=HIGHEST,
    )
    if layer.layer_norm == "none":
        return (1 + gain) * reach
    assert layer.norm1 is not None and layer.norm2 is not None
    moved = layer.writes.change(base_row.rows, {"y": state.own.T, "heads": heads})
    summed = base_row.rows["summed"] + moved["summed"]
    if layer.layer_norm == "pre":
        _, deviation = deviations(layer.norm2, summed)
        _, entered = norm_defect(layer.norm2, deviation, jnp.zeros_like(reach), reach)
        return reach + gain * entered
    _, deviation = deviations(layer.norm1, summed)
    _, entered = norm_defect(layer.norm1, deviation, jnp.zeros_like(reach), reach)
    _, deviation = deviations(layer.norm2, base_row.rows["left"] + moved["left"])
    left = (1 + gain) * entered
    _, out = norm_defect(layer.norm2, deviation, jnp.zeros_like(left), left)
    return out
