"""Cells of a benchmark: each is measured once and kept in the store of its folder."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from bounds.store.results import ResultStore
from bounds.version import __version__


def find_or_measure(
    store: ResultStore,
    config: Mapping[str, Any],
    measure: Callable[[], Mapping[str, Any]],
    *,
    fresh: bool,
) -> Mapping[str, Any]:
    """Returns what the store holds of a cell, measured now if it holds nothing.

    Args:
        store: Where rows are kept.
        config: What decides the row; the version is added to it.
        measure: Measures the row.
        fresh: Whether to measure again what the store holds.

    Returns:
        The row.
    """
    config = {**config, "version": __version__}
    row = None if fresh else store.find(config)
    if row is None:
        start = time.perf_counter()
        row = measure()
        store.record(config, row, time.perf_counter() - start)
    return row
