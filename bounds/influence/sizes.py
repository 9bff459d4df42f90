"""Norms, and the sizes that rounding is relative to."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.target import AnyTarget, exit_program
from bounds.influence.targets import TargetOperation
from bounds.readings.rules import no_rule
from jax_models.model.attending import score_scale
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.rows import (
    Activation,
    Affine,
    Norm,
    Operation,
    Steady,
    Step,
)
from jax_models.model.transformer import (
    Transformer,
    attention_input,
    encode_positions,
    of_input,
    symbol_rows,
)

HIGHEST = jax.lax.Precision.HIGHEST


def scaled_norm(change: Array) -> Array:
    """Returns Euclidean norms over the last axis without underflow of squares."""
    largest = jnp.abs(change).max(axis=-1)
    scale = jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(((change / scale[..., None]) ** 2).sum(axis=-1))


def mean_size(rows: Array) -> Array:
    """Returns the root mean square of the norms of rows [n, d], likewise."""
    unit, scale = _unit_scaled(rows)
    return scale * jnp.sqrt((unit**2).sum() / rows.shape[0])


def _largest_size(rows: Array) -> Array:
    """The largest norm over the last axis [], likewise."""
    unit, scale = _unit_scaled(rows)
    return scale * jnp.sqrt((unit**2).sum(axis=-1).max())


def _unit_scaled(rows: Array) -> tuple[Array, Array]:
    """Returns rows over their largest entry, and that; far smaller ones are lost."""
    largest = jnp.abs(rows).max()
    scale = jnp.where(largest > 0, largest, 1)
    return rows / scale, scale


@functools.partial(jax.jit, static_argnames="target")
def output_size(
    model: Transformer, output: Array, within: Array | None, target: AnyTarget
) -> Array:
    """Returns the size that the rounding of one evaluation of the target is relative to.

    A final norm divides errors by the row's deviation; logits are sums of weights times
    activations, so theirs is |W|_F |y| + |b|, which the logits may be far below; and so
    on through a head, operation by operation (`carried_size`).

    Args:
        model: a transformer.
        output: the query row after the last layer, before the final norm [d].
        within: the largest size met before, where it is known.
        target: "activation" or "logits".
    """
    size = scaled_norm(output)
    size = size if within is None else jnp.maximum(size, within)

    def rule(step: Step, read: tuple[Array, Array]) -> tuple[Array, Array]:
        row, size = read
        return step.operation(row), carried_size(step.operation, row, size)

    program = exit_program(model, target)
    return program.run({"y": (output, size)}, rule)[program.output][1]


@functools.singledispatch
def carried_size(operation: Operation, row: Array, size: Array) -> Array:
    """Returns the size that what an operation writes is rounded relative to.

    Args:
        operation: of one row.
        row: what it reads [d].
        size: what that is rounded relative to [].
    """
    raise no_rule("carried_size", operation)


@carried_size.register
def _(operation: Affine, row: Array, size: Array) -> Array:
    size = scaled_norm(operation.weight.ravel()) * size
    return size if operation.bias is None else size + scaled_norm(operation.bias)


@carried_size.register
def _(operation: Norm, row: Array, size: Array) -> Array:
    spread = operation.deviation(operation.centre(row))[0]
    return jnp.maximum(scaled_norm(operation(row)), operation.largest * size / spread)


@carried_size.register
def _(operation: Activation, row: Array, size: Array) -> Array:
    steep = jnp.abs(operation.slope(row)).max()
    return jnp.maximum(scaled_norm(operation(row)), steep * size)


@carried_size.register
def _(operation: TargetOperation, row: Array, size: Array) -> Array:
    steep = operation.lipschitz(row.shape[-1])
    return steep * size + scaled_norm(operation(row)) + jnp.abs(row).max()


@carried_size.register
def _(operation: Steady, row: Array, size: Array) -> Array:
    return jnp.maximum(scaled_norm(operation(row)), operation.steepest * size)


def entered_size(model: Transformer, rows: Array) -> Array:
    """Returns the sizes that what the entry makes of rows is rounded relative to [...].

    Args:
        model: a transformer.
        rows: embeddings with their positions [..., E].
    """
    size = scaled_norm(rows)
    carry = jnp.vectorize(carried_size, excluded=(0,), signature="(d),()->()")
    for operation in () if model.entry is None else model.entry.operations:
        rows, size = operation(rows), carry(operation, rows, size)
    return size


def entry_condition(model: Transformer, rows: Array) -> Array:
    """Returns what entered rows are rounded relative to over what they are, at least 1 [].

    Args:
        model: a transformer.
        rows: embeddings with their positions [n, E].
    """
    if model.entry is None:
        return jnp.ones((), model.dtype)
    size = mean_size(model.entry(rows))
    return jnp.maximum(
        entered_size(model, rows).max() / jnp.where(size > 0, size, 1), 1
    )


def score_rounding(
    attention: Attention, queries: Array, keys: Array, scale: Any, length: int
) -> Array:
    """Returns how many unit roundoffs the scores of a layer may be off by [].

    What a score's terms come to before they cancel, times half their number and 2, for the
    terms, their sum, and the query and key themselves: exp(score) is off by that relative
    to itself.

    Args:
        attention: the sublayer.
        queries: as scores use them [h, r, e].
        keys: likewise [h, k, e].
        scale: the score scale.
        length: n.
    """
    steps = attention.key_width / 2 + 2 + attention.placing_steps
    if attention.rotary is not None:  # whatever the positions are
        queries, keys = map(attention.rotary.sizes, (queries, keys))
    found = steps * attention.scoring.largest_terms(queries, keys, scale)
    return found + bias_rounding(attention, scale, length)


def bias_rounding(attention: Attention, scale: Any, length: int) -> Any:
    """Returns how many of them a bias of the distance adds to scores, a number or [].

    Args:
        attention: the sublayer.
        scale: the score scale.
        length: n.
    """
    if attention.distance_bias is None:
        return 0.0
    tau = scale / attention.scoring.square_scale(attention.key_width) ** 0.5
    largest = attention.distance_bias.largest(length) / tau.min()
    return attention.placing_steps * largest


def sharpest_row(attention: Attention, length: int, at: Array) -> Array:
    """Returns the row [1] of those given [r] that divides its scores by the least.

    Where a symbol's scores are the largest, whichever row it comes to.
    """
    scale = score_scale(attention, length, at)
    return at[:1] if scale.ndim == 0 else at[jnp.argmin(scale)][None]


# A layer above the first may meet larger scores than the base pass when a row moves.
ABOVE = 2


def substitutes(model: Transformer, tokens: Array, rows: Array) -> Array:
    """Returns what the first layer reads of every symbol, at the first position [V, d].

    Args:
        model: a transformer with a layer.
        tokens: the input [n].
        rows: its rows before the first layer [n, d].
    """
    every = jnp.arange(model.vocab_size)
    if model.entry is None and model.token_dropout is None:
        place = rows[0] - model.embedding[tokens[0]]
    else:
        place = encode_positions(model, tokens.shape[0])[0]
    model = of_input(model, tokens)
    found = attention_input(model.layers[0], symbol_rows(model, every, place))
    # A symbol whose row vanishes before a norm is refused where it is put in.
    return jnp.where(jnp.isfinite(found), found, 0)


def row_condition(layer: Layer, rows: Array, values: Array, size: Array) -> Array:
    """Returns what a layer's rows are rounded relative to over what they are, at least 1 [].

    The heads write to the rows, and the two may cancel, or either and the biases or the
    block. Behind a norm of the sum rows have another size, and what entered does not count.

    Args:
        layer: a layer.
        rows: its input [n, d].
        values: with their bias [h, n, v].
        size: of its output rows [].
    """
    written = written_size(layer, values)
    if layer.writes.steps[-1].operation.linear:
        written = jnp.maximum(written, mean_size(rows))
    return jnp.maximum(jnp.where(size > 0, written / size, 1), 1)


def norm_condition(layer: Layer, kept: Mapping[str, Array]) -> Array:
    """Returns what norms round a change relative to over what they leave of it []; 1 of most.

    Of rows that hold one number once they are centred a norm leaves the sign, and what its
    epsilon adds: a share of epsilon / s^2 of the change, s the deviation.

    Args:
        layer: a layer.
        kept: the rows that its norms read, among others [..., d].
    """
    found = jnp.ones((), layer.attention.query.dtype)
    for step in layer.writes.steps:
        if not isinstance(step.operation, Norm):
            continue
        row, norm = kept[step.inputs[0]], step.operation
        if np.trace(norm.centre(np.eye(row.shape[-1]))) < 1.5:  # a whole number
            spread = norm.deviation(norm.centre(row)).max()
            found = jnp.maximum(found, spread**2 / norm.epsilon)
    return found


def written_size(layer: Layer, values: Array) -> Array:
    """Returns what the heads can add to a row at most: sum_h |O_h|_F max_w |v_w|.

    Args:
        layer: a layer.
        values: with their bias [h, n, v].
    """
    largest = jax.vmap(_largest_size)(values)
    if layer.attention.output is None:
        return largest.max()
    heads, _, width = values.shape
    blocks = layer.attention.output.reshape(-1, heads, width).swapaxes(0, 1)
    return (scaled_norm(blocks.reshape(heads, -1)) * largest).sum()
