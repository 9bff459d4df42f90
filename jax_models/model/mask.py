"""Attention masks: the keys that a query row may attend to (sees), by position."""

import dataclasses
import math
from typing import Any, Literal, get_args

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

# `future` hides the future (j <= i, causal), `past` hides the past (j >= i); the strict forms
# hide the row itself too, so that a row may see nothing at all. Positions decide, never
# tokens: a replaced column is visible before exactly when it is visible after.
Mask = Literal["none", "future", "past", "strict_future", "strict_past"]
MASKS: tuple[str, ...] = get_args(Mask)


@dataclasses.dataclass(frozen=True)
class Sight:
    """Rule for the positions that a row sees: before it, after it, its own, in a window."""

    before: bool = True
    after: bool = True
    itself: bool = True
    window: int | None = None  # seen positions are less than this away; None for all
    # Length of the input if padding follows it, a scalar array; None without padding. Rows
    # of the padding see at most themselves and are seen by no other.
    end: Any = None

    @property
    def everything(self) -> bool:
        """Whether every row sees every position, at any length."""
        unmasked = self.before and self.after and self.itself and self.window is None
        return unmasked and self.end is None

    @property
    def reach(self) -> float:
        """Largest distance at which a row may see a position; inf without a window."""
        return math.inf if self.window is None else self.window - 1

    def visible(self, rows: Any, keys: Any) -> Bool[Any, "..."]:
        """Whether each of `rows` sees each of `keys`, positions that broadcast."""
        seen = jnp.ones(jnp.broadcast_shapes(rows.shape, keys.shape), bool)
        if not self.after:
            seen = keys <= rows if self.itself else keys < rows
        elif not self.before:
            seen = keys >= rows if self.itself else keys > rows
        if self.window is not None:
            seen &= (keys < rows + self.window) & (rows < keys + self.window)
        if self.end is None:
            return seen
        # As floats: see `same_position`.
        own = rows.astype(jnp.float32) == keys.astype(jnp.float32)
        return seen & (((rows < self.end) & (keys < self.end)) | own)

    def present(self, positions: Int[Array, "keys"]) -> Bool[Array, "keys"] | None:
        """Whether each position is before the padding; None without padding."""
        return None if self.end is None else positions < self.end

    def run(
        self, row: Int[Array, "..."], length: int
    ) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
        """First position seen by a row, and 1 + the last, equal if none; ignores padding."""
        itself = int(self.itself)
        first = row * 0 if self.before else row + 1 - itself
        end = row * 0 + length if self.after else row + itself
        if self.window is None:
            return first, end
        return (
            jnp.maximum(first, row - self.window + 1),
            jnp.minimum(end, row + self.window),
        )

    def count(self, row: int, length: int) -> int:
        """Number of positions below `length` that row `row` sees; ignores padding."""
        # `reach` may be infinite: the minimum is then the number of positions on that side.
        before, after = min(row, self.reach), min(length - 1 - row, self.reach)
        return int(before * self.before + self.itself + after * self.after)


# A new mask is one row here and a word in `Mask`.
SIGHTS: dict[str, Sight] = {
    "none": Sight(),
    "future": Sight(after=False),
    "past": Sight(before=False),
    "strict_future": Sight(after=False, itself=False),
    "strict_past": Sight(before=False, itself=False),
}


def visible(
    sight: Sight, rows: Int[Array, "rows"], keys: Int[Array, "keys"]
) -> Bool[Array, "rows keys"]:
    """Whether the query row at each position in `rows` sees each key in `keys`."""
    return sight.visible(rows[:, None], keys[None, :])


def sees_any(
    sight: Sight, rows: Int[Array, "rows"], length: int
) -> Bool[Array, "rows"]:
    """Whether each row sees any position at all."""
    if sight.itself:
        return jnp.ones(rows.shape, bool)
    # A window of 1 has the row itself alone, which the mask hides.
    if sight.reach < 1:
        return jnp.zeros(rows.shape, bool)
    some = rows > 0 if sight.before else rows < length - 1
    if sight.end is None:
        return some
    # Under a strict mask rows of the padding see nothing; nor does, if rows see only what
    # is after them, the last row before the padding.
    return some & (rows < (sight.end if sight.before else sight.end - 1))
