"""What a screen leaves open, enumerated by the cheapest method that computes any of them.

Source: docs/screened.md, section 4.
"""

from collections.abc import Callable

import numpy as np

from bounds.influence.incremental import INCREMENTAL
from bounds.influence.method import Method, refusal
from bounds.influence.moved import Readings
from bounds.influence.partial import PARTIAL
from bounds.influence.problem import Problem
from bounds.influence.propose import decide, require_finite
from jax_models.run.mesh import count_devices, first_says

# Of a part, after which what is known is kept.
PART_SECONDS = 60.0


def cheapest(problem: Problem) -> Method:
    """Returns the cheaper method of those that compute any substitutions alone.

    Args:
        problem: of a softmax transformer.
    """
    able = [way for way in (INCREMENTAL, PARTIAL) if refusal(way, problem) is None]
    return min(able, key=lambda way: way.cost(problem))


class Enumeration:
    """Computes any substitutions of a problem, as many as there are."""

    def __init__(self, problem: Problem, runs: int) -> None:
        """Chooses the method.

        Args:
            problem: of a softmax transformer.
            runs: how many runs with moved inputs are made beside.
        """
        self._problem, self._runs, self.way = problem, runs, cheapest(problem)

    @property
    def block(self) -> int:
        """Substitutions of a block on all devices."""
        sizes = self.way.sizes(self._problem)
        assert sizes is not None
        return sizes.substitutions * count_devices(self._problem.mesh)

    def next_size(self, size: int, seconds: float) -> int:
        """Returns how many substitutions the next part has, of whole blocks.

        Args:
            size: of the part before.
            seconds: that it took; the first part's compile, and tell little.
        """
        wanted = min(4.0, PART_SECONDS / max(seconds, 1e-3)) * size
        found = max(1, int(wanted / self.block)) * self.block
        return int.from_bytes(first_says(found.to_bytes(8, "big")), "big")

    def values(self, chosen: np.ndarray, report: Callable[[int], None]) -> Readings:
        """Returns the influences of some substitutions.

        Args:
            chosen: their indices [p], in order.
            report: called with the substitutions of every block that is done.

        Raises:
            InputError: an influence is not a finite number.
        """
        found = []
        for at, block in decide(self._problem, self.way, chosen, self._runs):
            require_finite(self._problem, at, block.values)
            found.append((block.values, block.moves))
            report(at.size)
        values, moves = (np.concatenate(x) for x in zip(*found, strict=True))
        return Readings(values, moves, None)
