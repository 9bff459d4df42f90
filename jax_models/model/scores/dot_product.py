"""Inner products of queries and keys, over sqrt(d_k) or as they are."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.scores.base import (
    KeyMap,
    Keys,
    Own,
    RowKeys,
    RowMoves,
    Rows,
    Score,
    Scores,
)
from jax_models.run.blocks import map_long_axis

HIGHEST = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True)
class DotProductScore(Score):
    """Inner product s = q . k of a query and a key."""

    scaled: bool  # whether sqrt(d_k) divides it

    word: ClassVar[str] = "dot-product"
    bilinear: ClassVar[bool] = True

    def square_scale(self, key_width: int) -> int:
        """Returns d_k if the score is scaled, else 1."""
        return key_width if self.scaled else 1

    def scores(self, queries: Rows, keys: Keys) -> Scores:
        """Returns q . k of each query q and key k."""
        return map_long_axis(
            lambda part: jnp.einsum("hre,hke->hrk", queries, part, precision=HIGHEST),
            keys,
            out_offset=1,
        )

    def changes(
        self,
        queries: Rows,
        keys: Keys,
        moved_queries: Rows | None,
        moved_keys: Keys | RowKeys | None,
    ) -> Scores:
        """Returns (q + dq) . dk + dq . k, changes dq and dk given as `moved_`, None for 0."""
        # Two products of changes, each of the size of the change: q' . k' - q . k would
        # cancel.
        parts = []
        if moved_keys is not None:
            after = queries if moved_queries is None else queries + moved_queries
            if moved_keys.ndim == keys.ndim:
                parts.append(self.scores(after, moved_keys))
            else:
                pairs = "hre,hrke->hrk"
                parts.append(jnp.einsum(pairs, after, moved_keys, precision=HIGHEST))
        if moved_queries is not None:
            parts.append(self.scores(moved_queries, keys))
        return sum(parts[1:], parts[0])

    def own_changes(
        self, queries: Rows, keys: Keys, moved_queries: Rows, moved_keys: Rows, own: Own
    ) -> Scores:
        """Returns (q + dq) . dk + dq . k, dk = 0 except at the one key that `own` marks."""
        # One key of each row moves: its term is a sum of single products, not a matrix of
        # keys.
        change = self.scores(moved_queries, keys)
        extra = ((queries + moved_queries) * moved_keys).sum(axis=-1)
        return change + jnp.where(own, extra[..., None], 0.0)

    def changes_of_rows(
        self,
        key: KeyMap,
        queries: Rows,
        keys: Keys,
        moved_queries: Rows,
        rows: RowMoves,
    ) -> Scores:
        """Score changes for key changes dk = `key` dy, dy those of rows, dk not formed."""
        after = queries + moved_queries
        # (q + dq) . (K dy) = (K^T (q + dq)) . dy: the queries are mapped back, one vector for
        # each row, in place of the keys, one for each row and position.
        back = jnp.einsum("hed,hre->hdr", key, after, precision=HIGHEST)

        def change(
            by_keys: Float[Array, "heads keys rows"],
            moved: Float[Array, "heads rows d_k"],
            keys: Float[Array, "heads keys d_k"],
        ) -> Float[Array, "heads rows keys"]:
            return by_keys.swapaxes(1, 2) + self.scores(moved, keys)

        return rows.once(change, rows.products(back), moved_queries, keys)
