"""Refuses rows that vanish before a norm whose epsilon is 0, which divides their rounding.

A row vanishes where what the norm divides by is no larger than twice what one roundoff of
every parameter changes of it. Looked at are the input, each substitute's row before the
first attention, and the substitution that is reported or is not a number.
"""

from collections.abc import Callable
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.problem import Problem
from jax_models import InputError, Transformer
from jax_models.model.layer import Layer
from jax_models.model.reweight import move_parameters
from jax_models.model.rows import Norm, Step
from jax_models.model.transformer import apply_layer, embed


def refuse_vanishing_rows(problem: Problem, at: int | None = None) -> None:
    """Refuses a problem, or one of its substitutions, of which a row vanishes.

    Raises:
        InputError: names the row, the norm and what is put in.
    """
    model, tokens, pairs = problem.model, problem.tokens, problem.pairs
    if not isinstance(model, Transformer):
        return
    norms = [x for layer in model.layers for x in (layer.norm1, layer.norm2)]
    if not any(_divides(norm) for norm in (*norms, model.final_norm)):
        return
    if at is None:
        _check(_entering, problem, tokens)
        for symbol in np.unique(pairs.symbol):
            changed = np.array(tokens)
            changed[pairs.position[pairs.symbol == symbol]] = symbol
            _check(_first, problem, changed, f"with symbol {symbol} put in, ")
    else:
        changed = np.array(tokens)
        changed[pairs.position[at]] = pairs.symbol[at]
        _check(_entering, problem, changed, f"with symbol {pairs.symbol[at]} put in, ")


def not_finite(problem: Problem, at: int) -> InputError:
    """Returns the error of a substitution whose influence is not a finite number."""
    refuse_vanishing_rows(problem, at)
    position, symbol = problem.pairs[at]
    return InputError(
        f"the influence of position {position}, symbol {symbol} is not a finite number: "
        "the model overflows or divides by zero"
    )


def _check(
    entering: Callable[..., Any], problem: Problem, tokens: np.ndarray, told: str = ""
) -> None:
    both = problem.model, move_parameters(problem.model)
    found, moved = (entering(x, jnp.asarray(tokens)) for x in both)
    for (depth, is_read, name), row in found.items():
        size, change = (
            np.sqrt(np.square(np.asarray(x, np.float64)).mean(axis=-1))
            for x in (row, row - moved[depth, is_read, name])
        )
        lost = np.isfinite(size) & ~(size > 2 * change)
        if is_read:  # what others make of the last layer's rows does not matter
            lost &= np.isin(np.arange(lost.size), problem.rows)
        if lost.any():
            position = int(np.argmax(lost))
            raise InputError(
                f"{told}the row at position {position} vanishes before {name}, whose "
                f"epsilon is 0: the {size[position]:.2g} that is left to divide by is "
                "rounding; give the norm a positive epsilon, or change the input"
            )


def _divides(operation: Any) -> TypeGuard[Norm]:
    return isinstance(operation, Norm) and operation.epsilon == 0


@jax.jit
def _first(model: Transformer, tokens: Array) -> dict[tuple[int, bool, str], Array]:
    """Centred rows [n, d] of the first norm, if attention reads what it writes."""
    first = model.layers[0] if model.layers else None
    if first is None or first.layer_norm != "pre" or not _divides(first.norm1):
        return {}
    return {(0, False, "norm1 of layer 0"): first.norm1.centre(embed(model, tokens))}


@jax.jit
def _entering(model: Transformer, tokens: Array) -> dict[tuple[int, bool, str], Array]:
    """Centred rows [n, d] that enter norms with epsilon = 0, in the order of norms.

    By the layer, whether of this norm the rows that are read alone count, and its name.
    """
    found, y = {}, embed(model, tokens)
    hidden = None if model.padding is None else model.padding.hides(tokens)
    for depth, layer in enumerate(model.layers):
        last = depth == len(model.layers) - 1
        (y, entering), _ = apply_layer(layer, y, None, hidden, _combine)
        for name, rows in entering.items():
            first = layer.layer_norm == "pre" and name == "norm1"
            found[depth, last and not first, f"{name} of layer {depth}"] = rows
    if _divides(final := model.final_norm):
        found[len(model.layers), True, "the final norm"] = final.centre(y)
    if hidden is not None:  # of padding nothing is asked
        found = {k: jnp.where(hidden[:, None], jnp.inf, x) for k, x in found.items()}
    return found


def _combine(layer: Layer, rows: Array, heads: Array) -> tuple[Array, dict[str, Array]]:
    """The layer's output rows, and centred rows before its norms with epsilon = 0."""
    entering = {}

    def rule(step: Step, *read: Array) -> Array:
        if _divides(operation := step.operation):
            name = "norm1" if operation is layer.norm1 else "norm2"
            entering[name] = operation.centre(*read)
        return operation(*read)

    layer.reads.run({"y": rows}, rule)
    program = layer.writes
    return program.run({"y": rows, "heads": heads}, rule)[program.output], entering
