"""A caller's own function of a row of logits as the watched target.

A target is a quantity watched of a model's output. Method "exhaustive" calls the
function on the logits of the unchanged and of every changed input.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import numpy as np

from bounds.influence.inputs.callable import Callable as FunctionOfTokens
from bounds.influence.targets.base import STATIC
from jax_models import InputError, Transformer
from jax_models.arguments import expect_number, show
from jax_models.model.pytree import pytree
from jax_models.model.transformer import forward, read_logits


@pytree
class TargetFunction:
    """A caller's function of the logits [v]; its change subtracts two of its values.

    Attributes:
        apply: From logits to a vector [c]; runs on many inputs at once if made by
            `jax.jit`.
        radius: Bound on the 2-norm distance of the returned vector from the true one,
            the logits' own rounding included: a number. None where nothing is stated:
            radii are then found by moving the model's weights, like the parameters of a
            `Callable`.
    """

    reads = "logits"
    is_joint = False
    least_logits = 1

    apply: Callable[[Any], Any] = dataclasses.field(metadata=STATIC)
    radius: float | None = dataclasses.field(default=None, metadata=STATIC)

    def __post_init__(self) -> None:
        if not callable(self.apply):
            raise InputError(f"apply = {show(self.apply)}; expected a function")
        if self.radius is not None:
            expect_number("radius", self.radius, 0)

    def entry_symbols(self, width: int) -> None:
        """None: a vector's entries have no symbols."""
        return

    def of(self, model: Transformer) -> Self:
        """The target itself; refuses a model with hard attention."""
        if model.is_hard:
            raise InputError(
                "a function of the logits is rerun without looking at ties, and the model "
                "has hard attention; use one of the targets of bounds.influence.targets"
            )
        return self

    def of_tokens(self, model: Transformer) -> FunctionOfTokens:
        """Function of tokens and watched rows that returns the target of each row."""
        options = {"vocab_size": model.vocab_size, "radius": self.radius}

        def logits(model: Transformer, tokens: Any, rows: Any) -> Any:
            return read_logits(model, forward(model, tokens, rows)[0])

        apply = self.apply
        if isinstance(apply, jax.stages.Wrapped):
            traced = jax.vmap(apply)
            return FunctionOfTokens.of_rows(
                lambda *x: traced(logits(*x)), model, **options
            )
        compiled = jax.jit(logits)

        def on_host(model: Transformer, tokens: Any, rows: Any) -> Any:
            return [apply(x) for x in np.asarray(compiled(model, tokens, rows))]

        return FunctionOfTokens.of_rows(on_host, model, host=True, **options)
