"""Changes of a target, and what they are rounded relative to: terms before they cancel."""

import functools
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.sizes import scaled_norm, unit_scaled
from bounds.influence.target import AnyTarget, exit_program
from bounds.influence.targets import TargetOperation
from bounds.readings.rules import no_rule
from jax_models.model.rows import (
    Activation,
    Affine,
    Norm,
    Operation,
    Program,
    Steady,
    Tanh,
    linear,
)
from jax_models.model.transformer import Transformer

HIGHEST = jax.lax.Precision.HIGHEST


@functools.singledispatch
def carried_rounding(
    operation: Operation, row: Array, moved: Array, size: Array
) -> Array:
    """Returns what the change that an operation writes is rounded relative to [...].

    At least where its terms cancel: what comes in is off in any direction, not in that of
    the change alone.

    Args:
        operation: of one row.
        row: what it reads [d].
        moved: the change of that [..., d].
        size: what that is rounded relative to [...].
    """
    raise no_rule("carried_rounding", operation)


@carried_rounding.register
def _(operation: Affine, row: Array, moved: Array, size: Array) -> Array:
    # Of what it reads alone: where none of that moves nothing does, and nothing rounds.
    read = jnp.where((operation.weight != 0).any(axis=0), moved, 0)
    whole = scaled_norm(moved)
    share = scaled_norm(read) / jnp.where(whole > 0, whole, 1)
    return largest_stretch(operation.weight) * size * share


@carried_rounding.register
def _(operation: Norm, row: Array, moved: Array, size: Array) -> Array:
    # Either term of a norm's change is at most this, and one cancels the other where a row
    # is drawn out or together; a row that is far from its mean's origin is off by more.
    after = row + moved
    spread = operation.deviation(operation.centre(after))[..., 0]
    spread = jnp.where(spread > 0, spread, 1)
    root = scaled_norm(after) / math.sqrt(row.shape[-1])
    return operation.largest * size / spread * jnp.maximum(root / spread, 1)


@carried_rounding.register
def _(operation: Activation, row: Array, moved: Array, size: Array) -> Array:
    ends = jnp.abs(operation.slope(row)), jnp.abs(operation.slope(row + moved))
    return jnp.maximum(ends[0].max(), ends[1].max(axis=-1)) * size


@carried_rounding.register
def _(operation: Steady, row: Array, moved: Array, size: Array) -> Array:
    return operation.steepest * size


@carried_rounding.register
def _(operation: Tanh, row: Array, moved: Array, size: Array) -> Array:
    # Its slope falls to either side of 0: the end that is nearer, or 0 between them.
    ends = jnp.abs(row), jnp.abs(row + moved)
    nearest = jnp.where(row * (row + moved) > 0, jnp.minimum(*ends), 0)
    return operation.slope(nearest).max(axis=-1) * size


@carried_rounding.register
def _(operation: TargetOperation, row: Array, moved: Array, size: Array) -> Array:
    return operation.lipschitz(row.shape[-1]) * size


def largest_stretch(weight: Array) -> Array:
    """Returns an upper bound of a matrix's largest singular value, but for rounding [].

    |W|_2^4 = |G^2|_2 <= |G^2|_F, G = W W' or W' W, whichever is the smaller.
    """
    unit, scale = unit_scaled(weight)
    unit = unit if weight.shape[0] <= weight.shape[1] else unit.T
    gram, more = unit_scaled(jnp.matmul(unit, unit.T, precision=HIGHEST))
    square = jnp.matmul(gram, gram, precision=HIGHEST)
    return scale * jnp.sqrt(more * jnp.sqrt(scaled_norm(square.ravel())))


def measure_target(
    model: Transformer, output: Array, change: Array, target: AnyTarget
) -> tuple[Array, Array]:
    """Returns norms [...] of the target's change, and what they are rounded relative to.

    Args:
        model: a transformer.
        output: the query row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: as in `exit_program`.
    """
    moved, relative = move_target(model, output, change, target)
    return scaled_norm(moved), relative


def move_target(
    model: Transformer, output: Array, change: Array, target: AnyTarget
) -> tuple[Array, Array]:
    """Returns the target's change [..., c], and what its norm is rounded relative to [...].

    What terms come to before they cancel in the final norm, the head or the target, step
    by step (`carried_rounding`); of an operation on the logits once more for each unit that
    their own terms come to: exponentials are off by that. Behind an activation that is
    flat far out, as tanh, it counts as often for each unit of what that reads.

    Args:
        model: a transformer.
        output: a row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: as in `exit_program`.
    """
    program = exit_program(model, target)
    base = program.value({"y": output})
    moved = program.change(base, {"y": change})
    size = scaled_norm(change)
    for step in program.steps:  # one behind the other
        (name,) = step.inputs
        size = carried_rounding(step.operation, base[name], moved[name], size)
        size = jnp.maximum(size, scaled_norm(moved[step.name]))
        ends = isinstance(step.operation, TargetOperation)
        if ends or isinstance(step.operation, Tanh):
            size = size * (1 + 2 * _entry_size(program, base, name))
    return moved[program.output], size


def _entry_size(program: Program, base: Mapping[str, Array], name: str) -> Array:
    """What the terms of an entry of a row come to before they cancel, at most []."""
    row = base[name]
    for step in program.steps:
        if step.name == name and isinstance(step.operation, Affine):
            weight, bias = step.operation.weight, step.operation.bias
            bias = None if bias is None else jnp.abs(bias)
            row = linear(jnp.abs(base[step.inputs[0]]), jnp.abs(weight), bias)
    return jnp.abs(row).max()
