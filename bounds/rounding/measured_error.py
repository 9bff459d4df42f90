"""Errors of estimates in half precision, measured on a sample that is computed again.

The sample depends on the question alone: multiples of the golden ratio modulo 1, which
spread over positions and, within them, over symbols, whatever the number of either.
"""

import dataclasses

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.moved import found_by
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import MeasuredError
from jax_models.model.reweight import with_dtype

SAMPLE = 32
GOLDEN = (5**0.5 - 1) / 2


def measure_error(request: InfluenceRequest) -> MeasuredError | None:
    """Errors in half precision of a sample of substitutions; None without any."""
    if not len(request.pairs):
        return None
    chosen = sample_of(len(request.pairs))
    pairs = dataclasses.replace(
        request.pairs, position=request.position[chosen], symbol=request.symbol[chosen]
    )
    request = dataclasses.replace(request, pairs=pairs)
    # The model's float type where JAX has 64-bit floats switched off.
    dtype = "float64" if jax.config.read("jax_enable_x64") else request.model.dtype.name
    model = with_dtype(request.model, dtype)
    shared = request.shared if model is request.model else SharedBase()
    exactly = dataclasses.replace(request, model=model, shared=shared, precision=None)
    estimates, values = (found_by(INCREMENTAL, x) for x in (request, exactly))
    moved = what_moved(request)
    moved = moved.reshape(moved.shape + (1,) * (values.ndim - moved.ndim))
    moved = np.broadcast_to(moved, values.shape)
    errors = relative_errors(estimates[moved], values[moved])
    return summarised(errors, len(chosen), dtype)


def sample_of(count: int) -> Int[np.ndarray, "sample"]:
    """Indices of at most `SAMPLE` of `count` substitutions, in order."""
    chosen = np.arange(min(count, SAMPLE))
    if count > SAMPLE:
        chosen = np.unique((count * (GOLDEN * chosen % 1)).astype(np.int64))
    return chosen


def relative_errors(
    estimates: Float[np.ndarray, "*results"], values: Float[np.ndarray, "*results"]
) -> Float[np.ndarray, "*results"]:
    """|estimate - value| / |value|: infinite for a value of 0 with another estimate."""
    off, size = np.abs(estimates - values), np.abs(values)
    return np.divide(off, size, out=np.where(off > 0, np.inf, 0.0), where=size > 0)


def summarised(
    errors: Float[np.ndarray, "errors"], substitutions: int, reference: str
) -> MeasuredError:
    """Quantiles of relative errors of values that may have moved."""
    found = np.zeros(3)
    if errors.size:
        found = np.quantile(errors, (0.5, 0.99, 1), method="higher")
    median, high, most = found.tolist()
    return MeasuredError(substitutions, errors.size, median, high, most, reference)


def what_moved(
    request: InfluenceRequest,
) -> Bool[np.ndarray, "substitutions"] | Bool[np.ndarray, "substitutions rows"]:
    """True of the values read that a substitution may have moved."""
    reached = request.reached()
    return reached[:, 0] if request.reading is None else reached
