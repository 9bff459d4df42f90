"""The largest influence, ranked in half precision and decided in float64 from the top.

The influence of a substitution (another symbol at one position) is the size of the
change of a watched output. All influences are estimated by products in half precision,
from a base pass (of the unchanged input) in float32. A sample of them and the largest
estimates are decided, which is to compute them in float64, block by block, until every
other estimate is below the largest by a margin: `MARGIN` times the largest relative
error of all that were decided. That nothing larger was left out is an estimate, and the
result has a measured error.
"""

import dataclasses

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.influence.decide import Proposals, remaining_blocks
from bounds.influence.method import Method, Run
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.moved import found_by
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures, MeasuredError
from bounds.rounding.precision import PRECISIONS
from jax_models.run.mesh import count_devices

SAMPLE = 32
GOLDEN = (5**0.5 - 1) / 2


def measure_error(request: InfluenceRequest) -> MeasuredError | None:
    """Measured relative errors of half-precision influences of a sample; None without any."""
    if not len(request.pairs):
        return None
    chosen = sample_of(len(request.pairs))
    request = dataclasses.replace(request, pairs=request.pairs.only(chosen))
    # The model's float type where JAX has 64-bit floats switched off.
    dtype = "float64" if jax.config.read("jax_enable_x64") else request.model.dtype.name
    exactly = dataclasses.replace(request, precision=None)
    if dtype != request.model.dtype.name:
        exactly = request.in_dtype(dtype, precision=None)
    estimates, values = (found_by(INCREMENTAL, x) for x in (request, exactly))
    moved = request.reached()
    moved = moved.reshape(moved.shape + (1,) * (values.ndim - moved.ndim))
    moved = np.broadcast_to(moved, values.shape)
    errors = relative_errors(estimates[moved], values[moved])
    return summarised(errors, len(chosen), dtype)


def sample_of(count: int) -> Int[np.ndarray, "sample"]:
    """Indices of at most `SAMPLE` of `count` substitutions, in order."""
    chosen = np.arange(min(count, SAMPLE))
    if count > SAMPLE:
        # Multiples of the golden ratio modulo 1 spread over positions and, within them, over
        # symbols, whatever the number of either; the sample depends on the question alone.
        chosen = np.unique((count * (GOLDEN * chosen % 1)).astype(np.int64))
    return chosen


def relative_errors(
    estimates: Float[np.ndarray, "*results"], values: Float[np.ndarray, "*results"]
) -> Float[np.ndarray, "*results"]:
    """|estimate - value| / |value|; 0 if both are 0, infinite if the value alone is."""
    off, size = np.abs(estimates - values), np.abs(values)
    return np.divide(off, size, out=np.where(off > 0, np.inf, 0.0), where=size > 0)


def summarised(
    errors: Float[np.ndarray, "errors"], substitutions: int, reference: str
) -> MeasuredError:
    """`MeasuredError`: median, 99th percentile and maximum of relative `errors`."""
    found = np.zeros(3)
    if errors.size:
        # One of the measured errors: between two, one of them infinite, nothing is
        # interpolated.
        found = np.quantile(errors, (0.5, 0.99, 1), method="higher")
    median, high, most = found.tolist()
    return MeasuredError(substitutions, errors.size, median, high, most, reference)


# Assumed bound on an estimate's error, in largest measured errors. Were errors normal, the
# largest of 32 would be above 1.5 deviations with probability 0.99, and six deviations would
# be passed by one of 10^6 others with probability 0.002. That they are is a model: rounded
# weights are shared by all substitutions.
MARGIN = 4
# Hypothesis of a ranking's maximum, in addition to the radii of decided values.
RANKED = (
    f"no estimate in half precision is off by more than {MARGIN} times the largest error "
    "of those decided; see bounds/rounding/ranked.py"
)


def decide_ranked(
    request: InfluenceRequest,
    way: Method,
    name: str,  # of the half precision
    run: Run,
) -> Enclosures:
    """Bounds of all influences: float64 values of the largest, estimates of the others."""
    sizes = way.sizes(request), INCREMENTAL.sizes(request)
    proposals = Proposals.open(request, way, run, name, way.name, sizes)
    _estimate(proposals, request, name)
    estimate, value = proposals.known.estimate, proposals.known.value
    kernel = way.kernel(request)
    assert kernel is not None
    batch = kernel.parts[0].batch * count_devices(request.mesh)
    # What has no estimate may be anything: it is decided, and measures nothing.
    measures = request.reached().ravel() & np.isfinite(estimate)
    order = np.argsort(-estimate, kind="stable")

    def measured() -> tuple[Bool[np.ndarray, "pairs"], Float[np.ndarray, "measured"]]:
        decided = np.isfinite(value)
        of = decided & measures
        return decided, relative_errors(estimate[of], value[of])

    def undecided() -> Int[np.ndarray, "block"]:
        decided, errors = measured()
        first = np.union1d(sample_of(estimate.size), order[:SAMPLE])
        if not decided[first].all():
            return first[~decided[first]]
        # Errors of what is decided on the way count too: a ranking that is worse than it
        # looked goes on by itself.
        off = MARGIN * errors.max() if errors.size else np.inf
        lower, _ = proposals.ends()
        # Even the estimate of a value as large as the best, off by `off`, is above this.
        floor = (1 - off) * lower[decided].max() if off < 1 else -np.inf
        chosen = order[~decided[order] & (estimate[order] >= floor)]
        return np.sort(chosen[:batch])

    proposals.decide(undecided)
    decided, errors = measured()
    lower, upper = proposals.ends()
    left = np.flatnonzero(~decided)
    lower, upper = (np.where(decided, end, estimate) for end in (lower, upper))
    error = None
    if left.size:
        error = summarised(errors, estimate.size - left.size, "float64")
    return proposals.enclosed((lower, upper, decided), left, error)


def _estimate(proposals: Proposals, request: InfluenceRequest, name: str) -> None:
    """Adds estimates of all influences to `proposals`, non-finite ones as infinity."""
    low = request.in_dtype("float32", precision=PRECISIONS[name])
    for block in remaining_blocks(proposals.known.done, low, INCREMENTAL, 0):
        values = np.where(np.isfinite(block.values), block.values, np.inf)
        proposals.add(dataclasses.replace(block, values=values))
