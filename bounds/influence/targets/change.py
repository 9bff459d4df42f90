"""From rows after the last layer, or final activations, to a target and its change.

A target is the quantity watched of a model's output; classes are its entries; a joint
target is one quantity of several rows together. Between the last layer and the target
stands the *exit*: the final norm and the head, a row program (operations on one row)
like those of layers. Base rows are those of the unchanged input, changes are by
substitutions of its symbols.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.influence.targets.base import Target
from bounds.influence.targets.table import as_value
from jax_models.model.rows import Affine, Program, Step
from jax_models.model.transformer import Transformer, read_logits
from jax_models.run.perturbation import perturb


def exit_program(model: Transformer, reads: str) -> Program:
    """Exit program: from the last layer's row `y` to final activation or logits."""
    steps, final = (), "y"
    if model.final_norm is not None:
        steps, final = (Step("final", model.final_norm, ("y",)),), "final"
    if reads == "activation":
        return Program(steps, final)
    head = model.head
    # The head's program reads the final activation, which the final norm writes if there is
    # one.
    renamed = (
        Step(x.name, x.operation, tuple(final if y == "final" else y for y in x.inputs))
        for x in head.steps
    )
    output = final if head.output == "final" else head.output
    return Program((*steps, *renamed), output)


def change_target(
    model: Transformer,
    reads: str,
    output: Float[Array, "width"],
    change: Float[Array, "*batch width"],
) -> tuple[Float[Array, "classes"], Float[Array, "*batch classes"]]:
    """Rows that a target reads and their exact changes, from a last layer's and theirs."""
    program = exit_program(model, reads)
    base = program.value({"y": output})
    return base[program.output], program.change(base, {"y": change})[program.output]


def read_target(
    model: Transformer, final: Float[Array, "*rows width"], reads: str
) -> Float[Array, "*rows classes"]:
    """Rows that a target reads: final activations, or the logits of these."""
    return final if reads == "activation" else read_logits(model, final)


def value_of(
    target: Target, rows: Float[Array, "rows width"]
) -> Float[Array, "watched classes"] | None:
    """Target's value of each row, or of all rows if joint; None if it has no value."""
    if target.is_joint:
        value = target.value(rows)
        return None if value is None else value[None]
    return jax.vmap(target.value)(rows)


def differences(
    target: Target,
    base: Float[Array, "*substitutions rows width"],  # of all, or of each of them
    changed: Float[Array, "substitutions rows width"],
) -> Float[Array, "substitutions watched classes"]:
    """Target's changes from base to changed rows: value differences or its own rule."""
    if base.ndim == changed.ndim:
        of_one = functools.partial(differences, target)
        return jax.vmap(lambda x, y: of_one(x, y[None])[0])(base, changed)
    before = value_of(target, base)
    if before is None:
        return apply_rule(target, base, changed - base)
    after: Any = jax.vmap(functools.partial(value_of, target))(changed)
    return after - before


def change_watched(
    model: Transformer,
    target: Target,
    outputs: Float[Array, "width"] | Float[Array, "rows width"],
    changes: Float[Array, "substitutions width"]
    | Float[Array, "substitutions rows width"],
) -> Float[Array, "substitutions watched classes"]:
    """Changes of the target at watched rows, from changes of rows before the exit."""
    if outputs.ndim == 1:
        outputs, changes = outputs[None], changes[:, None]
    by_row = functools.partial(change_target, model, target.reads)
    rows, moved = jax.vmap(by_row, in_axes=(0, 1), out_axes=(0, 1))(outputs, changes)
    return apply_rule(target, rows, moved)


def apply_rule(
    target: Target,
    rows: Float[Array, "rows width"],
    changes: Float[Array, "substitutions rows width"],
) -> Float[Array, "substitutions watched classes"]:
    """Changes of the target by its own rule, from changes of the rows that it reads."""

    def change(
        base: Float[Array, "*rows width"],
        moved: Float[Array, "substitutions *rows width"],
    ) -> Float[Array, "substitutions classes"]:
        found = target.change(base, moved)
        # A row that the target passes on was moved where it was formed; what it computes
        # rounds again, and is moved here.
        return found if found is moved else perturb(found)

    if target.is_joint:
        return change(rows, changes)[:, None]
    return jax.vmap(change, in_axes=(0, 1), out_axes=1)(rows, changes)


def nonlinear_head(model: Transformer, target: Any) -> str | None:
    """Reason why head or target is not affine in the final activation, or None."""
    value = as_value(target)
    nonlinear = [
        step.operation
        for step in exit_program(model, value.reads).steps
        if step.name != "final" and not isinstance(step.operation, Affine)
    ]
    if not isinstance(target, str):
        nonlinear.append(value)
    if not nonlinear:
        return None
    name = type(nonlinear[0]).__name__
    return f"it needs a target that is affine in the final activation, not {name}"


def target_map(model: Transformer, target: str) -> Float[Array, "classes width"]:
    """Matrix from changes of the final activation to those of a target with affine head."""
    identity = jnp.eye(model.width, dtype=model.dtype)
    if target == "activation":
        return identity
    head = model.head
    match [step.operation for step in head.steps]:
        case [Affine(weight)]:
            return weight
    return head.change({}, {"final": identity})[head.output].T
