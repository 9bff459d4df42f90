"""Influences on a bare function of the tokens: what it says, called again and again.

How far rounding takes such a function from what it stands for cannot be seen from
outside. Its influences are estimates, unless the caller states a radius r(x) of each
evaluation: |f(x) - what f stands for|_2 <= r(x). Then

    | |f(x') - f(x)| - influence | <= r(x') + r(x) + the rounding of the norm.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from bounds.influence.problem import Problem, Radius, check_radius
from bounds.influence.result import Block
from bounds.influence.substitution import padded
from bounds.rounding import SCALAR_STEPS, gamma_upper
from jax_models import InputError

INPUTS_AT_ONCE = 32
# What a float64 product can lose to underflow.
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


def function_blocks(problem: Problem) -> Iterator[Block]:
    """Yields the influences on a function, with radius 0 where none is stated."""
    tokens, stated = np.asarray(problem.tokens), problem.radius
    run = _batched(problem.model)
    base, base_radius = run(tokens[None])[0], _radii(stated, tokens[None])[0]
    for start in range(0, problem.position.size, INPUTS_AT_ONCE):
        part = slice(start, start + INPUTS_AT_ONCE)
        position, symbol = problem.position[part], problem.symbol[part]
        changed = np.repeat(tokens[None], position.size, axis=0)
        changed[np.arange(position.size), position] = symbol
        # What is not finite is refused by its name, without a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            influence = _norms(run(changed) - base)
        radius = np.zeros(position.size)
        if stated is not None:
            evaluations = _radii(stated, changed) + base_radius
            radius = evaluations * (1 + gamma_upper(SCALAR_STEPS))
            radius += _norm_rounding(influence, base.size)
        yield Block(influence, radius, None)


def _norms(change: np.ndarray) -> np.ndarray:
    """Norms [p] of the rows [p, m], which neither overflow nor underflow on the way."""
    scale = np.abs(change).max(axis=1, initial=0.0)
    divisor = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    return divisor * np.linalg.norm(change / divisor[:, None], axis=1)


def _norm_rounding(norm: np.ndarray, size: int) -> np.ndarray:
    """The rounding of a difference, its norm, and the ends: 0 where nothing differs."""
    rounding = gamma_upper(size + SCALAR_STEPS) * norm + SMALLEST
    return np.where(norm > 0, rounding, 0.0)


def _radii(stated: Radius | None, inputs: np.ndarray) -> np.ndarray:
    """The stated radius of each input [p, n]; 0 where there is none."""
    if callable(stated):
        return np.asarray([check_radius(stated(x), f" of {x}") for x in inputs])
    return np.full(len(inputs), 0.0 if stated is None else stated)


def _batched(function: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function of many inputs [p, n]: one call if it is a jitted one.

    Others are called once per input. Whether they could be traced cannot be found out
    by trying: `np.array_equal` of a tracer is False, not an error.
    """

    def run(inputs: np.ndarray) -> np.ndarray:
        if compiled is not None:
            found = compiled(padded(inputs, INPUTS_AT_ONCE))[: len(inputs)]
        else:
            found = [function(x) for x in inputs]
        vectors = [np.asarray(x, np.float64) for x in found]
        for vector in vectors:
            if vector.ndim != 1 or vector.shape != vectors[0].shape:
                raise InputError(
                    f"the function returned an array of shape {vector.shape}; expected "
                    "vectors [m], of one length for all inputs"
                )
        return np.stack(vectors)

    jitted = isinstance(function, jax.stages.Wrapped)
    compiled = jax.jit(jax.vmap(function)) if jitted else None
    return run
