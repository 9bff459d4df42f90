"""Enumeration of the substitutions that a screen leaves open, by the cheapest method.

Source: docs/screened.md, section 4.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from bounds.influence.incremental import INCREMENTAL
from bounds.influence.method import Method, refusal
from bounds.influence.moved import Readings
from bounds.influence.partial import PARTIAL
from bounds.influence.propose import decide, require_finite
from bounds.influence.request import InfluenceRequest
from jax_models.run.mesh import count_devices, first_says

# Duration of a part, after which the results are saved.
PART_SECONDS = 60.0


def cheapest(request: InfluenceRequest) -> Method:
    """Cheaper of the methods that compute chosen substitutions of a softmax model."""
    able = [way for way in (INCREMENTAL, PARTIAL) if refusal(way, request) is None]
    return min(able, key=lambda way: way.cost(request))


class Enumeration:
    """Computes any chosen substitutions of a request."""

    def __init__(self, request: InfluenceRequest, runs: int) -> None:
        """Chooses the method; `runs` is the number of runs with moved inputs."""
        self._request, self._runs, self.way = request, runs, cheapest(request)

    @property
    def block(self) -> int:
        """Substitutions of a block on all devices."""
        sizes = self.way.sizes(self._request)
        assert sizes is not None
        return sizes.substitutions * count_devices(self._request.mesh)

    def next_size(self, size: int, seconds: float) -> int:
        """Size of the next part, in whole blocks, from the last part's seconds."""
        # Capped: the first part's seconds are mostly compiling.
        wanted = min(4.0, PART_SECONDS / max(seconds, 1e-3)) * size
        found = max(1, int(wanted / self.block)) * self.block
        return int.from_bytes(first_says(found.to_bytes(8, "big")), "big")

    def values(
        self, chosen: Int[np.ndarray, "chosen"], report: Callable[[int], None]
    ) -> Readings:
        """Influences of the chosen substitutions; refuses non-finite values."""
        found = []
        for at, block in decide(self._request, self.way, chosen, self._runs):
            require_finite(self._request, at, block.values)
            found.append((block.values, block.moves))
            report(at.size)
        values, moves = (np.concatenate(x) for x in zip(*found, strict=True))
        return Readings(values, moves, None)
