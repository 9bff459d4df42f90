"""A maximum proposed in a cheap precision and decided in float64."""

import dataclasses
from typing import Literal, get_args

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.method import Done, Method, Screen
from bounds.influence.methods.incremental import Incremental
from bounds.influence.methods.propose import decide_proposed, unsupported_proposal
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures
from bounds.influence.run import Run
from bounds.rounding.precision import PRECISIONS
from bounds.rounding.ranked import decide_ranked
from jax_models import InputError
from jax_models.arguments import choose_name

Cheap = Literal["float32", "bfloat16", "float16"]


# Only where it is asked for: five runs in float32 take as long as two in float64.
@dataclasses.dataclass(frozen=True)
class Proposed(Screen):
    """All influences in a cheap precision, the possible maxima again in float64.

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
        """Checks both arguments."""
        choose_name("precision", self.precision, get_args(Cheap))
        half = self.method.precision if isinstance(self.method, Incremental) else None
        if half is not None:
            raise InputError(
                f"method = {self.method}: products of {half} are estimates, and decide "
                "nothing; leave its precision out"
            )

    @property
    def way(self) -> Method:
        """The method that computes, chosen by `choose_method`."""
        assert isinstance(self.method, Method)
        return self.method

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the method that computes."""
        return self.method if isinstance(self.method, str) else self.method.name

    @property
    def ranks(self) -> bool:
        """True where estimates without radii order the substitutions."""
        return self.precision in PRECISIONS

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Refuses models other than float64 softmax ones, and methods without blocks."""
        return unsupported_proposal(request, self.way, self.precision)

    def cost(self, request: InfluenceRequest) -> float:
        """Forward passes of the cheap precision."""
        return self.way.cost(request)

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Sizes of the method's blocks."""
        return self.way.sizes(request)

    def enclose(
        self, request: InfluenceRequest, run: Run, rounding: Done
    ) -> Enclosures:
        """Estimates of all influences, and float64 values of the possible maxima."""
        if self.ranks:
            return decide_ranked(request, self.way, self.precision, run)
        return decide_proposed(request, self.way, run)
