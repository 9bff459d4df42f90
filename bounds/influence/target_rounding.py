"""Changes of a target, and what they are rounded relative to: terms before they cancel."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from bounds.influence.carried_rounding import base_terms, carry_step
from bounds.influence.sizes import scaled_norm
from bounds.influence.target import AnyTarget, exit_program
from bounds.influence.targets import TargetOperation
from jax_models.model.rows import Affine, Program, linear
from jax_models.model.transformer import Transformer


def measure_target(
    model: Transformer,
    output: Array,
    change: Array,
    target: AnyTarget,
    size: Array | None = None,
) -> tuple[Array, Array]:
    """Returns norms [...] of the target's change, and what they are rounded relative to.

    Args:
        model: a transformer.
        output: the query row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: as in `exit_program`.
        size: as in `move_target`.
    """
    moved, relative = move_target(model, output, change, target, size)
    return scaled_norm(moved), relative


def move_target(
    model: Transformer,
    output: Array,
    change: Array,
    target: AnyTarget,
    size: Array | None = None,
) -> tuple[Array, Array]:
    """Returns the target's change [..., c], and what its norm is rounded relative to [...].

    What terms come to before they cancel in the final norm, the head or the target, step
    by step (`carry_step`); of an operation on the logits once more for each unit that
    their own terms come to: exponentials are off by that.

    Args:
        model: a transformer.
        output: a row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: as in `exit_program`.
        size: what that is rounded relative to [..., d]; itself if it is not given.
    """
    program = exit_program(model, target)
    base = program.value({"y": output})
    moved = program.change(base, {"y": change})
    sizes = {"y": jnp.abs(change) if size is None else size}
    terms = base_terms(program, base, {"y": jnp.abs(output)})
    for step in program.steps:  # one behind the other
        (name,) = step.inputs
        size = carry_step(step, base, moved, sizes, terms)
        if isinstance(step.operation, TargetOperation):
            size = size * (1 + 2 * _entry_size(program, base, name))
        sizes[step.name] = size
    return moved[program.output], scaled_norm(sizes[program.output])


def _entry_size(program: Program, base: Mapping[str, Array], name: str) -> Array:
    """What the terms of an entry of a row come to before they cancel, at most []."""
    row = base[name]
    for step in program.steps:
        if step.name == name and isinstance(step.operation, Affine):
            weight, bias = step.operation.weight, step.operation.bias
            bias = None if bias is None else jnp.abs(bias)
            row = linear(jnp.abs(base[step.inputs[0]]), jnp.abs(weight), bias)
    return jnp.abs(row).max()
