"""What `restrict` keeps of a search: every finished part of it, in the store of --out."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bounds.output import plain
from bounds.restriction.attempts import Found, Stage
from bounds.restriction.partial_input import PartialInput
from bounds.sweep import Results

# Every language has its bits at the tokens 0 and 1.
SYMBOLS = (0, 1)


class Parts:
    """Returns finished parts of a search from a store, and records new ones."""

    def __init__(self, store: Results, config: Mapping[str, Any], fresh: bool):
        """Keep the parts of one search.

        Args:
            store: Open for writing.
            config: All that decides what the search finds.
            fresh: Whether to do again what the store holds.
        """
        self.store = store
        self.config = config
        self.fresh = fresh
        self.earlier = 0.0  # seconds that parts took which an earlier run finished

    def __call__(self, name: str, work: Callable[[], Found]) -> Found:
        """Returns the result of a part, recorded or done now."""
        return _read(self.keep(name, lambda: _recorded(work())))

    def keep(self, name: str, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Returns a result in JSON types from the store, recorded or done now."""
        config = {**self.config, "part": name}
        row = None if self.fresh else self.store.find(config)
        if row is not None:
            self.earlier += self.store.seconds(config) or 0.0
            return row
        start = time.monotonic()
        found = work()
        self.store.record(config, found, time.monotonic() - start)
        return plain(found)


def _recorded(found: Found) -> dict[str, Any]:
    return {
        "rho": found.partial.tokens.tolist(),
        "method": found.method,
        "stages": [
            {"name": s.name, "rho": s.partial.tokens.tolist(), "seconds": s.seconds}
            for s in found.stages
        ],
    }


def _read(row: Mapping[str, Any]) -> Found:
    def partial(tokens: list[int]) -> PartialInput:
        return PartialInput(np.asarray(tokens, np.int32), SYMBOLS)

    stages = (
        Stage(stage["name"], partial(stage["rho"]), stage["seconds"])
        for stage in row["stages"]
    )
    return Found(partial(row["rho"]), row["method"], tuple(stages))
