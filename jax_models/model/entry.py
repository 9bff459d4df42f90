"""From symbols to the first layer's input: padding, masked tokens, norm and projection."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jax_models.arguments import expect_integer, expect_number, refuse_empty
from jax_models.errors import InputError
from jax_models.model.pytree import register
from jax_models.model.rows import Affine, Norm, Operation


@register
@dataclasses.dataclass(frozen=True)
class Padding:
    """A symbol that fills sequences up to one length, whose rows no row sees.

    It stands behind the last token, and is never put in the place of one.
    """

    symbol: int = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        """Refuses what is no symbol."""
        expect_integer("padding", self.symbol, 0)

    def hides(self, tokens: Any) -> Any:
        """Whether a row is hidden from all rows [n]."""
        return tokens == self.symbol

    def leave(self, tokens: Int[np.ndarray, "padded"]) -> Int[np.ndarray, "tokens"]:
        """Returns tokens without the padding behind them; refuses it elsewhere."""
        there = np.flatnonzero(tokens != self.symbol)
        refuse_empty("tokens without padding", there)
        if there[-1] != there.size - 1:
            first = int(np.flatnonzero(tokens == self.symbol)[0])
            raise InputError(
                f"the padding, symbol {self.symbol}, stands at position {first} of "
                f"{tokens.size}; expected it behind the last token alone"
            )
        return tokens[: there.size]


@register
@dataclasses.dataclass(frozen=True)
class TokenDropout:
    """embedding[x] (1 - share) / (1 - masked) where x is not the mask, else 0.

    The rule of ESM-2, as if masked tokens were dropped out (Lin et al. 2023). A token that
    becomes `<mask>`, or no longer is one, moves every row; any other substitution leaves
    the scale as it is.
    """

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


@register
@dataclasses.dataclass(frozen=True)
class Entry:
    """y^(0) = projection norm(embedding[x] + position) + bias, either perhaps absent.

    A norm behind the embedding (BERT), a projection of narrow embeddings to the model's
    width (ELECTRA), or the one and then the other (ALBERT).
    """

    norm: Norm | None = None  # [E]
    projection: Float[Array, "width d_embedding"] | None = None
    bias: Float[Array, "width"] | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations on rows, in order."""
        found: list[Operation] = [] if self.norm is None else [self.norm]
        if self.projection is not None:
            found.append(Affine(self.projection, self.bias))
        return tuple(found)

    def __call__(
        self, rows: Float[Array, "... d_embedding"]
    ) -> Float[Array, "... width"]:
        """The first layer's input, of embedded rows."""
        for operation in self.operations:
            rows = operation(rows)
        return rows

    def change(
        self,
        rows: Float[Array, "... d_embedding"],
        moved: Float[Array, "... d_embedding"],
    ) -> Float[Array, "... width"]:
        """Returns the exact change of the first layer's input."""
        for operation in self.operations:
            read = (moved,) if operation.linear else (rows, moved)
            rows, moved = operation(rows), operation.change(*read)
        return moved
