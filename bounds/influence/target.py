"""What is watched at the query: the final activation, the logits, or something of them.

Between the last layer and it stands the *exit*: the final norm and the head, a row
program like those of layers. Shapes: d model width, c = d or the number of classes.
"""

from typing import TypeAlias

import jax.numpy as jnp
from jax import Array

from bounds.influence.targets import TargetOperation
from jax_models.model.rows import Affine, Program, Step
from jax_models.model.transformer import Transformer, read_logits

# The names "activation" and "logits", or a value.
AnyTarget: TypeAlias = str | TargetOperation


def exit_program(model: Transformer, target: AnyTarget) -> Program:
    """Returns the program from the row `y` that the last layer writes to the target.

    Args:
        model: a transformer; with a read-out but where the target is "activation".
        target: "activation", "logits", or an operation on the logits.
    """
    steps, final = (), "y"
    if model.final_norm is not None:
        steps, final = (Step("final", model.final_norm, ("y",)),), "final"
    if target == "activation":
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


def value_at_exit(model: Transformer, outputs: Array, target: AnyTarget) -> Array:
    """Returns the target [..., c] from rows after the last layer [..., d].

    Args:
        model: a transformer.
        outputs: the rows, before the final norm.
        target: as in `exit_program`.
    """
    program = exit_program(model, target)
    return program.value({"y": outputs})[program.output]


def change_target(
    model: Transformer, output: Array, change: Array, target: AnyTarget
) -> Array:
    """Returns the change of the target [..., c].

    Args:
        model: a transformer.
        output: the query row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: as in `exit_program`.
    """
    program = exit_program(model, target)
    base = program.value({"y": output})
    return program.change(base, {"y": change})[program.output]


def read_target(model: Transformer, output: Array, target: AnyTarget) -> Array:
    """Returns the target from the final activation of the query row [d]."""
    if target == "activation":
        return output
    logits = read_logits(model, output)
    return target(logits) if isinstance(target, TargetOperation) else logits


def bent_head(model: Transformer, target: AnyTarget) -> str | None:
    """Returns what of head and target is no map, None if nothing; see `target_map`.

    Args:
        model: a transformer.
        target: as in `exit_program`.
    """
    for step in exit_program(model, target).steps:
        if step.name != "final" and not isinstance(step.operation, Affine):
            name = type(step.operation).__name__
            return (
                f"it needs a target that is affine in the final activation, not {name}"
            )
    return None


def target_map(model: Transformer, target: str) -> Array:
    """Returns the linear map from the final activation to the target [c, d].

    Args:
        model: a transformer; its head is affine (`bent_head`).
        target: "activation" or "logits".
    """
    identity = jnp.eye(model.width, dtype=model.dtype)
    if target == "activation":
        return identity
    head = model.head
    match [step.operation for step in head.steps]:
        case [Affine(weight)]:
            return weight
    return head.change({}, {"final": identity})[head.output].T
