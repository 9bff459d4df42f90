"""Targets of one row: the final activation, the logits, or an operation on them.

Between the last layer and the target stands the *exit*: the final norm and the head, a
row program like those of layers. Classes are the target's entries: the model width, the
number of logits, or those of the operation.
"""

from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.influence.targets import TargetOperation
from jax_models.model.rows import Affine, Program, Step
from jax_models.model.transformer import Transformer, read_logits

# "activation", "logits", or an operation on the logits.
AnyTarget: TypeAlias = str | TargetOperation


def exit_program(model: Transformer, target: AnyTarget) -> Program:
    """Program from the row `y` that the last layer writes to the target."""
    steps, final = (), "y"
    if model.final_norm is not None:
        steps, final = (Step("final", model.final_norm, ("y",)),), "final"
    if target == "activation":  # no other target does without a read-out
        return Program(steps, final)
    head = model.head
    renamed = (
        Step(x.name, x.operation, tuple(final if y == "final" else y for y in x.inputs))
        for x in head.steps
    )
    output = final if head.output == "final" else head.output
    steps = (*steps, *renamed)
    if isinstance(target, TargetOperation):
        steps, output = (*steps, Step("target", target, (output,))), "target"
    return Program(steps, output)


def value_at_exit(
    model: Transformer, outputs: Float[Array, "*batch width"], target: AnyTarget
) -> Float[Array, "*batch classes"]:
    """Target of rows after the last layer, before the final norm."""
    program = exit_program(model, target)
    return program.value({"y": outputs})[program.output]


def change_target(
    model: Transformer,
    output: Float[Array, "width"],
    change: Float[Array, "*batch width"],
    target: AnyTarget,
) -> Float[Array, "*batch classes"]:
    """Change of the target, from that of a row before the final norm."""
    program = exit_program(model, target)
    base = program.value({"y": output})
    return program.change(base, {"y": change})[program.output]


def read_target(
    model: Transformer, output: Float[Array, "width"], target: AnyTarget
) -> Float[Array, "classes"]:
    """Target of the final activation of a row."""
    if target == "activation":
        return output
    logits = read_logits(model, output)
    return target(logits) if isinstance(target, TargetOperation) else logits


def bent_head(model: Transformer, target: AnyTarget) -> str | None:
    """Reason why head and target are not affine (see `target_map`), or None."""
    for step in exit_program(model, target).steps:
        if step.name != "final" and not isinstance(step.operation, Affine):
            name = type(step.operation).__name__
            return (
                f"it needs a target that is affine in the final activation, not {name}"
            )
    return None


def target_map(model: Transformer, target: str) -> Float[Array, "classes width"]:
    """Linear map from the final activation to the target; the head is affine."""
    identity = jnp.eye(model.width, dtype=model.dtype)
    if target == "activation":
        return identity
    head = model.head
    match [step.operation for step in head.steps]:
        case [Affine(weight)]:
            return weight
    return head.change({}, {"final": identity})[head.output].T
