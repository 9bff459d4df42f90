"""Calls about one input or many, and keywords of earlier versions."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, ParamSpec

from jax_models.arguments import expect_array
from jax_models.errors import InputError
from jax_models.moved import refuse_moved

P = ParamSpec("P")
NO_CHECKPOINT = "it is of Screened and Proposed, which keep their state in a file"
# The new place of keywords up to version 0.1.
MOVED = {
    "mesh": "run=bounds.Run(mesh=...)",
    "memory_limit": "run=bounds.Run(memory_limit=...)",
    "checkpoint": "run=bounds.Run(checkpoint=...)",
    "progress": "run=bounds.Run(progress=...)",
    "rtol": "method=bounds.Screened(rtol=...)",
    "budget": "method=bounds.Screened(budget=...)",
    "propose": "method=bounds.Proposed(...)",
    "precision": "method=bounds.Incremental(precision=...)",
    "vocab_size": "model=bounds.Callable(..., vocab_size=...)",
    "radius": "model=bounds.Callable(..., radius=...)",
    "rtol_exact": "the constant bounds.numbers.kind.RTOL_EXACT, 1 %",
    "shared": "bounds.influence.build_request(..., shared=...)",
}


def of_each_input(ask: Callable[P, Any]) -> Callable[P, Any]:
    """Decorates a question so that of many inputs it gives a list of answers."""

    # `ask` takes a model and one input; the options hold for all inputs.
    @functools.wraps(ask)
    def asked(model: Any, tokens: Any, **options: Any) -> Any:
        refuse_moved(ask.__name__, options, MOVED)
        if is_batch(tokens):
            if getattr(options.get("run"), "checkpoint", None) is not None:
                raise InputError(
                    "checkpoint keeps the state of one input, and tokens are many: ask "
                    "about each by itself, or leave checkpoint out"
                )
            return [asked(model, one, **options) for one in tokens]
        if len(shape := getattr(tokens, "shape", ())) > 2:
            raise InputError(
                f"tokens have shape {shape}; expected one sequence [n], or many: [K, n] "
                "or a list of sequences"
            )
        started = time.perf_counter()
        found: Any = ask(model, tokens, **options)  # pyright: ignore[reportCallIssue]
        return dataclasses.replace(found, seconds=time.perf_counter() - started)

    return asked  # pyright: ignore[reportReturnType]


def is_batch(tokens: Any) -> bool:
    """True of many inputs: [inputs, tokens], or a list of inputs of any lengths."""
    if isinstance(tokens, list | tuple) and tokens:
        return all(expect_array("tokens", one).ndim == 1 for one in tokens)
    return getattr(tokens, "ndim", None) == 2
