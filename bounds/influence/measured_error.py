"""How far estimates in half precision are off: a sample of them, computed again.

The sample is the same for the same question: multiples of the golden ratio modulo 1, which
spread over positions and, within them, over symbols, whatever the number of either.
"""

import dataclasses

import jax
import numpy as np

from bounds.influence.incremental import INCREMENTAL
from bounds.influence.problem import Problem, SharedBase
from bounds.influence.result import MeasuredError
from bounds.influence.substitution import may_move
from jax_models.model.reweight import with_dtype

SAMPLE = 32
GOLDEN = (5**0.5 - 1) / 2


def measure_error(problem: Problem) -> MeasuredError | None:
    """Returns the error of a sample of at most `SAMPLE` substitutions.

    Args:
        problem: the question, in half precision.

    Returns:
        Errors relative to what is computed in float64, or in the model's float type where
        JAX has 64-bit floats switched off; None where nothing is substituted.
    """
    count = len(problem.pairs)
    if not count:
        return None
    chosen = np.arange(min(count, SAMPLE))
    if count > SAMPLE:
        chosen = np.unique((count * (GOLDEN * chosen % 1)).astype(np.int64))
    pairs = dataclasses.replace(
        problem.pairs,
        position=problem.position[chosen],
        symbol=problem.symbol[chosen],
    )
    problem = dataclasses.replace(problem, pairs=pairs)
    dtype = "float64" if jax.config.read("jax_enable_x64") else problem.model.dtype.name
    model = with_dtype(problem.model, dtype)
    shared = problem.shared if model is problem.model else SharedBase()
    exactly = dataclasses.replace(problem, model=model, shared=shared, precision=None)
    estimates, values = _found(problem), _found(exactly)
    moved = _moved(problem).reshape(*values.shape[:2], *(1,) * (values.ndim - 2))
    moved = np.broadcast_to(moved, values.shape)
    estimates, values = estimates[moved], values[moved]
    off, size = np.abs(estimates - values), np.abs(values)
    error = np.divide(off, size, out=np.where(off > 0, np.inf, 0.0), where=size > 0)
    median, high, most = (
        np.quantile(error, (0.5, 0.99, 1), method="higher")
        if error.size
        else np.zeros(3)
    )
    return MeasuredError(
        len(chosen), error.size, float(median), float(high), float(most), dtype
    )


def _found(problem: Problem) -> np.ndarray:
    """What is read of each substitution [p, 1] or [p, r, ...]."""
    blocks = [block.influence for block in INCREMENTAL.blocks(problem)]
    found = np.concatenate(blocks)
    return found[:, None] if problem.reading is None else found


def _moved(problem: Problem) -> np.ndarray:
    """What of that may have moved at all."""
    if problem.reading is not None:
        return problem.reached()
    replaced = problem.position, problem.symbol
    return may_move(problem.model, problem.tokens, problem.rows, *replaced)
