"""The largest influence, ranked in half precision and decided in float64 from the top.

All substitutions are estimated by products in half precision, from a base pass in
float32. A sample of them and the largest estimates are computed in float64, block by
block, until every other estimate is below the largest by a margin: `MARGIN` times the
largest relative error of all that were computed. The value, position and symbol found
are those of float64; that nothing larger was left out is an estimate, and the result
has a measured error.

Were errors normal, the largest of 32 would be above 1.5 deviations with probability
0.99, and four times that, six deviations, would be passed by one of 10^6 others with
probability 0.002. That they are is a model: rounded weights are shared by all
substitutions.
"""

import dataclasses

import numpy as np

from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Method
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.methods.propose import Proposals, remaining_blocks
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures
from bounds.influence.run import Run
from bounds.rounding.measured_error import (
    SAMPLE,
    relative_errors,
    sample_of,
    summarised,
    what_moved,
)
from bounds.rounding.precision import PRECISIONS
from jax_models.model.reweight import with_dtype
from jax_models.run.mesh import count_devices

# Assumed bound on an estimate's error, in largest measured errors.
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
    """Largest estimates decided in float64; their error unless all were."""
    sizes = way.sizes(request), INCREMENTAL.sizes(request)
    known = Proposals(request, run, name, way.name, sizes)
    _estimate(known, request, name)
    estimate, value = known.estimate, known.value
    kernel = way.kernel(request)
    assert kernel is not None
    batch = kernel.parts[0].batch * count_devices(request.mesh)
    # What has no estimate may be anything: it is decided, and measures nothing.
    measures = what_moved(request).ravel() & np.isfinite(estimate)
    order = np.argsort(-estimate, kind="stable")

    def measured() -> tuple[np.ndarray, np.ndarray]:
        decided = np.isfinite(value)
        of = decided & measures
        return decided, relative_errors(estimate[of], value[of])

    def undecided() -> np.ndarray:
        decided, errors = measured()
        first = np.union1d(sample_of(estimate.size), order[:SAMPLE])
        if not decided[first].all():
            return first[~decided[first]]
        off = MARGIN * errors.max() if errors.size else np.inf
        lower, _ = known.ends(request, way)
        # Even the estimate of a value as large as the best, off by `off`, is above this.
        floor = (1 - off) * lower[decided].max() if off < 1 else -np.inf
        chosen = order[~decided[order] & (estimate[order] >= floor)]
        return np.sort(chosen[:batch])

    known.decide(request, way, undecided)
    decided, errors = measured()
    lower, upper = known.ends(request, way)
    left = np.flatnonzero(~decided)
    lower, upper = (np.where(decided, end, estimate) for end in (lower, upper))
    error = None
    if left.size:
        error = summarised(errors, estimate.size - left.size, "float64")
    return known.enclosed(request, way, (lower, upper, decided), left, error)


def _estimate(known: Proposals, request: InfluenceRequest, name: str) -> None:
    """Adds influences in half precision, infinite where float32 has no number."""
    low = dataclasses.replace(
        request,
        model=with_dtype(request.model, "float32"),
        shared=SharedBase(),
        precision=PRECISIONS[name],
    )
    for block in remaining_blocks(known.done, low, INCREMENTAL, 0):
        lost = ~np.isfinite(block.values)
        known.add(
            dataclasses.replace(block, values=np.where(lost, np.inf, block.values))
        )
