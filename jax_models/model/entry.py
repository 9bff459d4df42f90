"""From symbols to the first layer's input: padding, masked tokens, norm and projection."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jax_models.arguments import expect_integer, expect_number, refuse_empty
from jax_models.errors import InputError
from jax_models.model.pytree import pytree, static
from jax_models.model.rows import Affine, Norm, Operation


@pytree
class Padding:
    """A symbol that fills sequences up to one length, whose rows no row sees.

    Padding is behind the last token, and is never a substitute for a token.
    """

    symbol: int = static()

    def __post_init__(self) -> None:
        """Raises `InputError` unless the symbol is an integer >= 0."""
        expect_integer("padding", self.symbol, 0)

    def hides(self, tokens: Any) -> Any:
        """Returns tokens == symbol: whether each of `tokens` [n] is padding."""
        return tokens == self.symbol

    def leave(self, tokens: Int[np.ndarray, "padded"]) -> Int[np.ndarray, "tokens"]:
        """Returns tokens without the padding at the end; refuses padding before a token."""
        there = np.flatnonzero(tokens != self.symbol)
        refuse_empty("tokens without padding", there)
        # Tokens without a gap are at positions 0 to their number less 1.
        if there[-1] != there.size - 1:
            first = int(np.flatnonzero(tokens == self.symbol)[0])
            raise InputError(
                f"the padding, symbol {self.symbol}, stands at position {first} of "
                f"{tokens.size}; expected it behind the last token alone"
            )
        return tokens[: there.size]


@pytree
class TokenDropout:
    """Scaling of embeddings by (1 - share) / (1 - masked), of the mask symbol by 0.

    masked is the fraction of mask symbols in the input, share that of training.
    """

    # The rule of ESM-2, as if masked tokens were dropped out (Lin et al. 2023). A token that
    # becomes `<mask>`, or no longer is one, changes every row; any other substitution leaves
    # the scale as it is.
    mask: int = static()
    share: float = static()
    # (1 - share) / (1 - masked) of one input; None before `of_input`.
    scale: Float[Array, ""] | None = None

    def __post_init__(self) -> None:
        """Raises `InputError` unless the mask is an integer >= 0 and 0 <= share < 1."""
        expect_integer("token_dropout.mask", self.mask, 0)
        share = expect_number("token_dropout.share", self.share, 0)
        if share >= 1:
            raise InputError(f"token_dropout.share = {share}; expected less than 1")
        vars(self).update(share=share)

    def of_input(
        self, tokens: Any, dtype: jnp.dtype, padding: Padding | None = None
    ) -> "TokenDropout":
        """Returns the rule with the scale of `tokens` [n]; padding is not counted."""
        # Already that of an input.
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
        """Returns embedding `rows` [..., E] of `symbols` scaled, zero for the mask symbol."""
        assert self.scale is not None
        return jnp.where((symbols == self.mask)[..., None], 0, rows * self.scale)


@pytree
class Entry:
    """First layer's input y = projection norm(embedding[x] + position) + bias."""

    # Each may be absent: a norm behind the embedding (BERT), a projection of narrow
    # embeddings to the model's width (ELECTRA), or the one and then the other (ALBERT).
    norm: Norm | None = None  # [E]
    projection: Float[Array, "width d_embedding"] | None = None
    projection_bias: Float[Array, "width"] | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations from embedded rows to the first layer's input, in order."""
        found: list[Operation] = [] if self.norm is None else [self.norm]
        if self.projection is not None:
            found.append(Affine(self.projection, self.projection_bias))
        return tuple(found)

    def __call__(
        self, rows: Float[Array, "... d_embedding"]
    ) -> Float[Array, "... width"]:
        """Returns the first layer's input of embedded rows."""
        for operation in self.operations:
            rows = operation(rows)
        return rows

    def change(
        self,
        rows: Float[Array, "... d_embedding"],
        moved: Float[Array, "... d_embedding"],
    ) -> Float[Array, "... width"]:
        """Exact change of the first layer's input when `rows` change by `moved`."""
        for operation in self.operations:
            read = (moved,) if operation.linear else (rows, moved)
            # The next operation changes at its own input, so that the rows go on beside their
            # change.
            rows, moved = operation(rows), operation.change(*read)
        return moved
