"""Questions about many inputs, asked of each."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from jax_models.arguments import expect_array
from jax_models.errors import InputError

P = ParamSpec("P")


def of_each_input(ask: Callable[P, Any]) -> Callable[P, Any]:
    """Decorates a question so that of many inputs it gives a list of answers."""

    # `ask` takes a model and one input; the options hold for all inputs.
    @functools.wraps(ask)
    def asked(model: Any, tokens: Any, **options: Any) -> Any:
        if is_batch(tokens):
            if options.get("checkpoint") is not None:
                raise InputError(
                    "checkpoint keeps where one input stands, and tokens are many: ask "
                    "about each by itself, or leave checkpoint out"
                )
            return [ask(model, one, **options) for one in tokens]  # pyright: ignore[reportCallIssue]
        if len(shape := getattr(tokens, "shape", ())) > 2:
            raise InputError(
                f"tokens have shape {shape}; expected one sequence [n], or many: [K, n] "
                "or a list of sequences"
            )
        return ask(model, tokens, **options)  # pyright: ignore[reportCallIssue]

    return asked  # pyright: ignore[reportReturnType]


def is_batch(tokens: Any) -> bool:
    """True of many inputs: [inputs, tokens], or a list of inputs of any lengths."""
    if isinstance(tokens, list | tuple) and tokens:
        return all(expect_array("tokens", one).ndim == 1 for one in tokens)
    return getattr(tokens, "ndim", None) == 2
