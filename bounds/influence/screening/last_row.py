"""The query row of the last layer, and what is wanted of it.

It is evaluated exactly where all known changes have been made; around that, the unknown
changes move it by their base derivative, which the cotangents carry back, and by the rest:
the derivative differs from the base's, attention and the row map are not linear, nor is a
final norm.

Source: docs/screened.md, section 2.10. Shapes: h heads, i substitutions, n columns, c wanted
coordinates.
"""

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.screening.layer_base import ScreenedLayer
from bounds.influence.screening.moved_row import (
    BaseRow,
    Unknown,
    bound_row,
    configure_row,
)
from bounds.influence.screening.norm_defect import deviations, norm_defect
from bounds.influence.screening.row_map import move_row_map
from bounds.influence.screening.state import State, read_inputs
from bounds.influence.target import change_target, target_map
from bounds.matrix_norm import spectral_norms
from jax_models.attention import project_query_changes
from jax_models.transformer import Transformer, join_heads

HIGHEST = jax.lax.Precision.HIGHEST


def screen_last_row(
    model: Transformer,
    base: ScreenedLayer,
    state: State,
    position: Array,
    query: Array,
    target: str,
    row_tile: int,
) -> tuple[Array, Array, Array]:
    """Returns the known change of the target [c, i], a bound on the rest, a magnitude.

    The rest [i] is what the target moves further, but for the base derivative of the
    unknown changes of the layer's input.

    Args:
        model: the model.
        base: base and adjoint pass of the last layer, at the query alone.
        state: of the layer's input rows.
        position: the replaced positions [i], the query not among them.
        query: its position [].
        target: "activation" or "logits".
        row_tile: rows at once.
    """
    layer = model.layers[-1]
    attention, prepared = layer.attention, base.prepared
    n, at = prepared.store.length, query[None]
    inputs = read_inputs(layer, prepared.rows, state, position)
    row = BaseRow(at, prepared.queries, prepared.summary, _mean_keys(base))
    query_change = project_query_changes(attention, inputs.change[query].T, n, at)
    known = (attention, row, query_change, prepared.store, inputs, position, row_tile)
    configuration = configure_row(*known)
    query_norm = base.map_norms[2][:, None] / base.query_scale
    unknown = Unknown(query_norm * inputs.unknown[query], *base.map_norms[:2])
    bounds = bound_row(*known, configuration, unknown)
    linear = bounds.linear + base.statistics.covariance_norm.T * unknown.query
    defect = jnp.minimum(bounds.curved + bounds.turned, bounds.moves + linear)
    output = move_row_map(
        layer,
        base.rows,
        state.known[query][None],
        join_heads(configuration.heads).T[None],
        jnp.concatenate([state.unknown[query][None], linear + defect])[:, None],
    )
    rest = output.defect[0]
    rest = rest + jnp.matmul(base.head_weight[0], defect, precision=HIGHEST)
    rest = rest + (base.input_weight[:, None] * inputs.defect).sum(axis=0)
    final = prepared.output[0]
    change = change_target(model, final, output.known[0].T, target).T
    if model.final_norm is not None:
        _, deviation = deviations(model.final_norm, final)
        size = jnp.sqrt((output.known[0] ** 2).sum(axis=0))
        beyond, _ = norm_defect(model.final_norm, deviation, size, output.unknown[0])
        rest = rest + spectral_norms(target_map(model, target)) * beyond
    sizes = jnp.sqrt((inputs.change**2).sum(axis=1)) + inputs.unknown
    magnitude = (base.magnitude[:, None] * sizes).sum(axis=0)
    return change, rest, magnitude + jnp.sqrt((change**2).sum(axis=0))


def _mean_keys(base: ScreenedLayer) -> Array:
    """The mean keys of the rows [h, r, e]."""
    return base.statistics.mean_key.swapaxes(0, 1)
