"""ESM-2's rule for embeddings, whatever the positions: rows of `<mask>` are zero.

The others are scaled by (1 - share) / (1 - share of `<mask>` in the input), as if masked
tokens were dropped out (Lin et al. 2023). So a token that becomes `<mask>`, or no longer is
one, moves every row; any other substitution leaves the scale as it is.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from jax_models.arguments import expect_integer, expect_number
from jax_models.errors import InputError
from jax_models.model.padding import Padding
from jax_models.model.pytree import register


@register
@dataclasses.dataclass(frozen=True)
class TokenDropout:
    """embedding[x] (1 - share) / (1 - masked) where x is not the mask, else 0."""

    mask: int = dataclasses.field(metadata={"static": True})
    share: float = dataclasses.field(metadata={"static": True})
    # Of one input; None where the input is still to come.
    scale: Array | None = None

    def __post_init__(self) -> None:
        """Refuses a mask that is no symbol, and a share that is none."""
        expect_integer("token_dropout.mask", self.mask, 0)
        share = expect_number("token_dropout.share", self.share, 0)
        if share >= 1:
            raise InputError(f"token_dropout.share = {share}; expected less than 1")
        object.__setattr__(self, "share", share)

    def of_input(
        self, tokens: Any, dtype: jnp.dtype, padding: Padding | None = None
    ) -> "TokenDropout":
        """Returns it with the scale of an input [n], whose padding does not count."""
        if self.scale is not None:
            return self
        there: dict[str, Any] = {}
        if padding is not None:
            there["where"] = ~padding.hides(tokens)
        masked = (tokens == self.mask).mean(dtype=dtype, **there)
        return dataclasses.replace(self, scale=(1 - self.share) / (1 - masked))

    def __call__(
        self, rows: Float[Array, "... d_embedding"], symbols: Int[Array, "..."]
    ) -> Float[Array, "... d_embedding"]:
        """Returns embeddings [..., E] of symbols [...] as they enter; it has a scale."""
        assert self.scale is not None
        return jnp.where((symbols == self.mask)[..., None], 0, rows * self.scale)
