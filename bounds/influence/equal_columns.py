"""What the rounding of one column may move: a share of the output's size.

Equal columns, of one symbol and one position encoding, have equal values but for rounding.
Where they hold most of a row's weight, a replaced one of them moves that rounding, times its
own weight: more than a radius that is relative to the change says. What it comes to is the
roundoff of the output's size, times

    weight of the largest column * (what heads write) / (the row that they write to),

the second factor since rows may mostly be what all inputs have in common, which takes no
part. It is a model of rounding, like the radius that it adds to (`bounds.numbers.rounding`).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer
from bounds.influence.query_row import QueryRow
from bounds.influence.sizes import mean_size, written_size
from jax_models.model.attending import project_value_changes
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import Transformer
from jax_models.weighting.softmax import SoftmaxSummary

HIGHEST = jax.lax.Precision.HIGHEST


@jax.jit
def column_share(
    model: Transformer, bases: tuple[PreparedLayer, ...], last: QueryRow | None
) -> Array:
    """Returns the largest share of a layer [], all of them softmax.

    Of two layers the first's rows count as the query row weighs them; of more, the largest
    weight of any row counts.

    Args:
        model: a transformer.
        bases: of all layers but the last, or of the only one.
        last: the query row of the last, None where there is only one.
    """
    tops = [base.summary.top_weight.max(axis=0) for base in bases]
    if last is not None:
        if len(bases) == 1:
            tops[0] = _as_weighed(model.layers[-1], last, tops[0])
        tops.append(last.summary.top_weight)
    largest = jnp.stack([top.max() for top in tops])
    return (largest * _written_shares(model, bases, last)).max().astype(model.dtype)


@jax.jit
def hard_share(
    model: Transformer, bases: tuple[PreparedLayer, ...], last: QueryRow | None
) -> Array:
    """Returns the share of the output's size that hard layers may move by rounding [].

    A change there is a difference of stored means of values, whose rounding is relative to
    the values, and to the rows that they are of: all of the output, or what heads write
    where that cancels in it.

    Args:
        model: a transformer with a hard layer.
        bases: of all layers but the last, or of the only one.
        last: the query row of the last, None where there is only one.
    """
    largest = _written_shares(model, bases, last).max()
    return jnp.maximum(1, largest).astype(model.dtype)


def _written_shares(
    model: Transformer, bases: tuple[PreparedLayer, ...], last: QueryRow | None
) -> Array:
    """`written_share` of each layer [L]."""
    shares = [
        written_share(layer, base.rows, base.store.values, base.output)
        for layer, base in zip(model.layers, bases, strict=False)
    ]
    if last is not None:
        layer = model.layers[-1]
        values = project_value_changes(layer.attention, last.inputs)
        shares.append(written_share(layer, last.rows, values, last.output[None]))
    return jnp.stack(shares)


def _as_weighed(layer: Layer, last: QueryRow, tops: Array) -> Array:
    """Means over the rows below [n] with the query row's weights [h]."""
    index = jnp.arange(last.rows.shape[0], dtype=jnp.int32)
    seen = visible(layer.attention.sight, last.position, index)
    above = jnp.where(seen, last.scores - last.summary.lse[..., None], -jnp.inf)
    return jnp.einsum("hqn,n->h", jnp.exp(above), tops, precision=HIGHEST)


def written_share(layer: Layer, rows: Array, values: Array, output: Array) -> Array:
    """Returns what heads write at most, over the size of the rows that they write to [].

    Args:
        layer: the layer.
        rows: its input [n, d].
        values: of the centred rows [h, n, v].
        output: its output [r, d]. A layer norm behind the sum hides how large that was;
            there the input's size and what is written stand for it.
    """
    written = written_size(layer, values)
    size = mean_size(output)
    if not layer.writes.steps[-1].operation.linear:
        size = mean_size(rows) + written
    return jnp.where(size > 0, written / jnp.where(size > 0, size, 1), 1)


@functools.singledispatch
def largest_weight(summary: Any, scores: Array, visible: Array) -> Array:
    """Returns the largest weight of a column, a member of its class []; 1 if not known.

    Args:
        summary: of the rows, over classes.
        scores: of the classes, without their counts [h, j, k].
        visible: whether a row sees a class [j, k].
    """
    del summary, visible
    return jnp.ones((), scores.dtype)


@largest_weight.register
def _(summary: SoftmaxSummary, scores: Array, visible: Array) -> Array:
    above = jnp.where(visible, scores - summary.lse[..., None], -jnp.inf)
    return jnp.exp(jnp.minimum(above, 0)).max()
