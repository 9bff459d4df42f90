"""A maximum proposed in a cheap precision and decided in float64.

An influence is the norm of the output's change when one token is replaced (a
substitution). It is known from a lower to an upper end: its value less and plus a
radius (bound on rounding). In float32 all influences are computed with their radii, and
those whose upper end reaches the largest lower end again in float64: the first of the
largest of them is the maximum of float64. Half precision orders influences by estimates
without radii, in `bounds.rounding.ranked`.
"""

import dataclasses
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.decide import Proposals, ends_by, remaining_blocks
from bounds.influence.method import Done, Method, Run, Screen
from bounds.influence.methods.incremental import INCREMENTAL, Incremental
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.precision import PRECISIONS
from bounds.rounding.ranked import decide_ranked
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name
from jax_models.run.mesh import count_devices

Cheap = Literal["float32", "bfloat16", "float16"]


# Only where it is asked for: five runs in float32 take as long as two in float64.
@dataclasses.dataclass(frozen=True)
class Proposed(Screen):
    """Method: all influences in a cheap precision, the possible maxima again in float64.

    Args:
        precision: "float32" computes all with radii, and in float64 those whose upper
            end reaches the largest lower end: the maximum, its position and its symbol
            are those of float64, the ends of the others those of float32. "bfloat16"
            or "float16" ranks all as `Incremental` estimates them, and computes in
            float64 from the top until the rest is below by four times the largest
            error measured: value, position and symbol are exact, that they are the
            maximum is estimated, and the others are estimates.
        method: the method that computes, or its name.
    """

    precision: Cheap = "float32"
    method: Method | str = "auto"
    requires_all_radii = True

    def __post_init__(self) -> None:
        """Raises if `precision` is unknown or `method` has a precision of its own."""
        choose_name("precision", self.precision, get_args(Cheap))
        half = self.method.precision if isinstance(self.method, Incremental) else None
        if half is not None:
            raise InputError(
                f"method = {self.method}: products of {half} are estimates, and decide "
                "nothing; leave its precision out"
            )

    @property
    def way(self) -> Method:
        """Method that computes the influences, a value in place of "auto" or a name."""
        assert isinstance(self.method, Method)
        return self.method

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the method that computes the influences."""
        return self.method if isinstance(self.method, str) else self.method.name

    @property
    def ranks(self) -> bool:
        """True if substitutions are ordered by half-precision estimates, without radii."""
        return self.precision in PRECISIONS

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Reason why `precision` cannot propose the maximum of a request, or None."""
        model = request.model
        if not isinstance(model, Transformer):
            return f"a function that is not ours has no {self.precision} form"
        if model.dtype != np.float64:
            return f"the model is {model.dtype.name}, and float64 is to decide"
        if model.is_hard:
            return (
                f"hard attention's winners in {self.precision} may be others than in "
                "float64"
            )
        if not self.way.in_blocks:
            return f"method {self.name!r} does not compute some substitutions alone"
        # Half precision carries changes, whatever decides.
        return INCREMENTAL.refuse(request) if self.ranks else None

    def cost(self, request: InfluenceRequest) -> float:
        """Estimated cost in forward passes of the method that computes the influences."""
        return self.way.cost(request)

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Sizes of the blocks of the method that computes the influences."""
        return self.way.sizes(request)

    def enclose(
        self, request: InfluenceRequest, run: Run, rounding: Done
    ) -> Enclosures:
        """Ends of all influences; float64 values of those that may be the largest."""
        way = self.way
        if self.ranks:
            return decide_ranked(request, way, self.precision, run)
        rules = "float32", way.name, way.sizes(request)
        proposals = Proposals.open(request, way, run, *rules)
        known = proposals.known
        # Weights, embeddings and positions are rounded once. The runs of the radii move all
        # of them by sixteen roundings of float32, so that the radii contain that rounding.
        low = request.in_dtype("float32")
        count = len(request.pairs)
        for block in remaining_blocks(known.done, low, way, RUNS):
            proposals.add(block)
        lower, upper = ends_by(low, way, known.estimate, known.move)
        # What float32 has no number for may be anything.
        lost = ~np.isfinite(upper)
        lower, upper = np.where(lost, 0.0, lower), np.where(lost, np.inf, upper)

        def enclosed() -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
            decided = ~np.isnan(known.value)
            low, high = proposals.ends()
            return np.where(decided, low, lower), np.where(decided, high, upper)

        def left() -> Int[np.ndarray, "left"]:
            low, high = enclosed()
            return np.flatnonzero(np.isnan(known.value) & (high >= low.max()))

        def undecided() -> Int[np.ndarray, "block"]:
            # The block of the largest first: what it comes to leaves others out.
            begun = np.isfinite(known.value).any()
            first = np.argmax(np.where(lost, np.inf, upper), keepdims=True)
            some = left() if begun else first
            return _whole(request, way, some) if some.size else some

        proposals.decide(undecided)
        return proposals.enclosed((*enclosed(), np.ones(count, bool)), left())


def _whole(
    request: InfluenceRequest, way: Method, chosen: Int[np.ndarray, "chosen"]
) -> Int[np.ndarray, "together"]:
    """Indices of all substitutions of the blocks in which a chosen one lies."""
    # The last digit of a result may depend on the place in its block, and equal
    # influences are told apart by their digits.
    kernel = way.kernel(request)
    assert kernel is not None
    devices = count_devices(request.mesh)
    found = []
    for part in kernel.parts:
        some = chosen[(part.start <= chosen) & (chosen < part.end)]
        size = part.batch * devices
        for number in np.unique((some - part.start) // size).tolist():
            start = part.start + number * size
            found.append(np.arange(start, min(start + size, part.end)))
    return np.concatenate(found)
