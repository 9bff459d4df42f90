"""Results kept in memory: what a computation that writes no file keeps its cells in."""

import json
from collections.abc import Mapping
from typing import Any

from bounds.output import canonical_json
from bounds.store import cell_key


class MemoryResults:
    """The results of finished cells, as a store would give them back.

    They go through JSON like those of a store, so that a result does not depend on
    where it is kept.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: dict[str, tuple[str, float]] = {}

    def find(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the result of a finished cell, if it is kept."""
        kept = self._kept.get(cell_key(config))
        return None if kept is None else json.loads(kept[0])

    def seconds(self, config: Mapping[str, Any]) -> float | None:
        """Returns the wall time that it took."""
        kept = self._kept.get(cell_key(config))
        return None if kept is None else kept[1]

    def record(
        self, config: Mapping[str, Any], payload: Mapping[str, Any], seconds: float
    ) -> None:
        """Keep the result of a finished cell."""
        self._kept[cell_key(config)] = canonical_json(payload), float(seconds)

    def record_failure(
        self, config: Mapping[str, Any], message: str, seconds: float
    ) -> None:
        """Forget the cell: a failure is told by whoever ran it, not kept."""
        self._kept.pop(cell_key(config), None)
