"""Options of a question by their bare names, and functions, as values."""

import dataclasses
from collections.abc import Callable
from typing import Any

import bounds
from bounds.influence import METHODS

RUN = {x.name for x in dataclasses.fields(bounds.Run)}


def ask(model: Any, tokens: Any, propose: str | None = None, **question: Any) -> Any:
    """Influences; options of runs and of screens stand among those of the question."""
    run = {name: question.pop(name) for name in RUN & question.keys()}
    screen = {x: question.pop(x) for x in ("rtol", "budget") if x in question}
    if screen:
        question["method"] = bounds.Screened(**screen)
    if propose is not None:
        method = question.get("method", "auto")
        question["method"] = bounds.Proposed(propose, METHODS.get(method, method))
    return bounds.compute_influence(model, tokens, run=bounds.Run(**run), **question)


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
