"""Targets that are a row of the output itself: the final activation or the logits."""

import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.targets.base import Target
from jax_models.model.pytree import pytree


class _Row(Target):
    """Target that is the row it reads."""

    def change(
        self, base: Float[Array, "width"], change: Float[Array, "*batch width"]
    ) -> Float[Array, "*batch width"]:
        """The row's change."""
        return change

    def value(self, base: Float[Array, "width"]) -> Float[Array, "width"]:
        """The row."""
        return base


@pytree
class Activation(_Row):
    """Target: the final activation of a watched row."""

    name = "activation"
    label = "‖Δy‖₂, activation units"
    reads = "activation"


@pytree
class Logits(_Row):
    """Target: the logits of a watched row."""

    name = "logits"
    label = "‖Δ logits‖₂, nats"

    def entry_symbols(self, width: int) -> Int[np.ndarray, "width"]:
        """All symbols: entry v is that of symbol v."""
        return np.arange(width)
