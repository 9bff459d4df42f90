"""Options of a question by their bare names, and functions, as values."""

from collections.abc import Callable
from typing import Any

import bounds
from bounds.influence import METHODS

RUN = ("mesh", "memory_limit", "checkpoint", "progress")


def as_values(
    method: str = "auto",
    propose: str | None = None,
    precision: str | None = None,
    **question: Any,
) -> dict[str, Any]:
    """Keywords of `compute_influence` and `scan`."""
    run = {name: question.pop(name) for name in RUN if name in question}
    screen = {x: question.pop(x) for x in ("rtol", "budget") if x in question}
    made: Any = method
    if screen:
        made = bounds.Screened(**screen)
    if precision is not None:
        made = bounds.Incremental(precision)
    if propose is not None:
        made = bounds.Proposed(propose, METHODS.get(method, method))
    return {**question, "method": made, **({"run": bounds.Run(**run)} if run else {})}


class Killed(Exception):
    """Stops a call that keeps a checkpoint."""


def resume(ask: Callable[[], Any]) -> tuple[Any, int]:
    """Result of a call that is asked again until it is not killed, and how often it was."""
    stops = 0
    while True:
        try:
            return ask(), stops
        except Killed:
            stops += 1


def on_host(function: Any, vocab_size: int, **options: Any) -> bounds.Callable:
    """A function of NumPy tokens [n]."""
    how: dict[str, Any] = {"batched": False, "host": True, **options}
    return bounds.Callable(function, vocab_size=vocab_size, **how)
