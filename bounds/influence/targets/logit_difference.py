"""The difference of two logits as a target, a quantity watched of a model's output."""

import dataclasses

from jaxtyping import Array, Float

from bounds.influence.targets.base import STATIC, Target
from jax_models import InputError
from jax_models.arguments import expect_integer
from jax_models.model.pytree import pytree


@pytree
class LogitDifference(Target):
    """The logit of one symbol less that of another."""

    name = "logit_difference"
    form = ":S:T"
    symbol_fields = ("symbol", "other")
    label = "|Δ difference of logits|, nats"

    symbol: int = dataclasses.field(metadata=STATIC)
    other: int = dataclasses.field(metadata=STATIC)

    def __post_init__(self) -> None:
        expect_integer("symbol", self.symbol, 0)
        expect_integer("other", self.other, 0)
        if self.symbol == self.other:
            raise InputError(
                f"symbol = other = {self.symbol}: the difference of a logit and itself is "
                "0; expected two different symbols"
            )

    def value(self, base: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """Difference of the two logits, from a row of logits."""
        return base[..., self.symbol, None] - base[..., self.other, None]

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch 1"]:
        """Change of the difference, from changes of the logits."""
        return self.value(change)
