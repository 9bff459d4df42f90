"""What a screen leaves open, enumerated: proposed in float32, decided in float64.

A part of what is left is computed by the cheapest exact method. Of a float64 model all of
it is computed in float32 first, with radii, and in float64 only what may still be the
largest; where float32 tells too little apart that is given up.

Source: docs/screened.md, section 4; `propose` has what the radii of float32 are of.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from bounds.influence.incremental import INCREMENTAL
from bounds.influence.kernel import Kernel
from bounds.influence.method import Method, refusal
from bounds.influence.partial import PARTIAL
from bounds.influence.problem import Problem, SharedBase
from bounds.influence.propose import (
    TELLS_APART,
    conversion,
    decide,
    lacks_of_proposal,
    require_finite,
)
from jax_models.model.reweight import with_dtype
from jax_models.run.mesh import count_devices, first_says

# Of a part, after which what is known is kept.
PART_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Found:
    """What is known of the substitutions of a part: ends, and values that are exact."""

    lower: np.ndarray  # [p]
    upper: np.ndarray  # [p]
    value: np.ndarray  # [p] NaN where float32 ruled them out


def cheapest(problem: Problem) -> Method:
    """Returns the cheaper method of those that compute any substitutions alone.

    Args:
        problem: of a softmax transformer.
    """
    able = [way for way in (INCREMENTAL, PARTIAL) if refusal(way, problem) is None]
    return min(able, key=lambda way: way.cost(problem))


class Enumeration:
    """Computes any substitutions of a problem, as many as there are."""

    def __init__(self, problem: Problem) -> None:
        """Chooses the method, and makes what all parts share.

        Args:
            problem: of a softmax transformer.
        """
        way = cheapest(problem)
        self._problem, self._exact = problem, _kernel(way, problem)
        self._low: tuple[Problem, Kernel] | None = None
        if lacks_of_proposal(problem, way) is None:
            model = with_dtype(problem.model, "float32")
            low = dataclasses.replace(problem, model=model, shared=SharedBase())
            self._low = low, _kernel(way, low)
            self._widen = conversion(problem, way)

    @property
    def block(self) -> int:
        """Substitutions of a block on all devices."""
        mesh = self._problem.mesh
        batch = max(part.batch for part in self._exact.parts)
        return batch * count_devices(mesh)

    def next_size(self, size: int, seconds: float) -> int:
        """Returns how many substitutions the next part has, of whole blocks.

        Args:
            size: of the part before.
            seconds: that it took; the first part's compile, and tell little.
        """
        wanted = min(4.0, PART_SECONDS / max(seconds, 1e-3)) * size
        found = max(1, int(wanted / self.block)) * self.block
        return int.from_bytes(first_says(found.to_bytes(8, "big")), "big")

    def enclose(
        self, chosen: np.ndarray, least: float, report: Callable[[int], None]
    ) -> Found:
        """Returns what is found of some substitutions.

        Args:
            chosen: their indices [p], in order.
            least: a lower end of the maximum.
            report: called with the substitutions of every block that is done.

        Raises:
            InputError: an influence that is decided is not a finite number.
        """
        found = Found(
            np.zeros(chosen.size),
            np.full(chosen.size, np.inf),
            np.full(chosen.size, np.nan),
        )
        told = (
            None
            if self._low is not None and self._propose(chosen, found, report)
            else report
        )

        def left() -> np.ndarray:
            most = max(least, float(found.lower.max()))
            return np.flatnonzero(np.isnan(found.value) & (found.upper >= most))

        # Those with the largest values first: what they come to leaves others out.
        middle = found.lower + found.upper
        first = left()[np.argsort(-middle[left()], kind="stable")][: self.block]
        for these in (lambda: np.sort(first), left):
            self._decide(chosen, these(), found, told)
        return found

    def _propose(
        self, chosen: np.ndarray, found: Found, report: Callable[[int], None]
    ) -> bool:
        """Whether float32 tells the substitutions apart; if so, what it encloses."""
        assert self._low is not None
        value, radius = np.empty((2, chosen.size))
        for at, some, off in decide(*self._low, chosen):
            these = np.searchsorted(chosen, at)
            value[these], radius[these] = some, self._widen(off, at)
            report(at.size)
        # What float32 has no number for may be anything.
        lost = ~np.isfinite(value + radius)
        top = int(np.argmax(np.where(lost, -np.inf, value)))
        if lost[top] or radius[top] > TELLS_APART * value[top]:
            self._low = None
            return False
        found.lower[:] = np.where(lost, 0.0, np.maximum(value - radius, 0))
        found.upper[:] = np.where(lost, np.inf, value + radius)
        return True

    def _decide(
        self,
        chosen: np.ndarray,
        these: np.ndarray,
        found: Found,
        report: Callable[[int], None] | None,
    ) -> None:
        for at, value, radius in decide(self._problem, self._exact, chosen[these]):
            require_finite(self._problem, at, value)
            where = np.searchsorted(chosen, at)
            found.value[where] = value
            found.lower[where] = np.maximum(value - radius, 0)
            found.upper[where] = value + radius
            if report is not None:
                report(at.size)


def _kernel(way: Method, problem: Problem) -> Kernel:
    kernel = way.kernel(problem)
    assert kernel is not None
    return kernel
