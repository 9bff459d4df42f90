"""What is watched at the query: the final activation, or the logits.

Between the last layer and it stands the *exit*: the final norm and the head, a row
program like those of layers. Shapes: d model width, c = d or the number of classes.
"""

import jax.numpy as jnp
from jax import Array

from jax_models.model.rows import Affine, Program, Step
from jax_models.model.transformer import Transformer, read_logits


def exit_program(model: Transformer, target: str) -> Program:
    """Returns the program from the row `y` that the last layer writes to the target.

    Args:
        model: a transformer; with a read-out where the target is "logits".
        target: "activation" or "logits".
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
    return Program((*steps, *renamed), output)


def change_target(
    model: Transformer, output: Array, change: Array, target: str
) -> Array:
    """Returns the change of the target [..., c].

    Args:
        model: a transformer.
        output: the query row after the last layer, before the final norm [d].
        change: of that row [..., d].
        target: "activation" or "logits".
    """
    program = exit_program(model, target)
    base = program.value({"y": output})
    return program.change(base, {"y": change})[program.output]


def read_target(model: Transformer, output: Array, target: str) -> Array:
    """Returns the target from the final activation of the query row [d]."""
    return output if target == "activation" else read_logits(model, output)


def bent_head(model: Transformer, target: str) -> str | None:
    """Returns what of the head is not affine, None if nothing; see `target_map`.

    Args:
        model: a transformer.
        target: "activation" or "logits".
    """
    if target == "activation":
        return None
    for operation in (step.operation for step in model.head.steps):
        if not isinstance(operation, Affine):
            name = type(operation).__name__
            return f"it needs an affine head, and the model's has {name}"
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
