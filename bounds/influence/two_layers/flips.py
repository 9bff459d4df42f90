"""Neurons of a ReLU block that flip: active in one of base and changed input, not both.

A column is the key and value at a replaced position, one for each substitution; a pair
is a row and a column. u is a neuron's input in a row of the base pass (the unchanged
input); a column changes it by the sum over heads of share (turn neurons + z), where
share is the pair's tau (`columns.py`: the factor of the change of the row's attended
value), neurons belong to the column, turn (E there) and z to the row. Vectors are the
other program (`change_block`), which forms a vector for each pair.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.pointwise import RELU
from jax_models.run.blocks import slice_tile

# Slack of a bound on how far neurons move, for its rounding.
SLACK = 1e-3
# The most neurons of a tile that may flip, and pairs of a tile with large shares; where
# there are more, vectors are cheaper.
MOST_FLIPS, MOST_LARGE = 256, 2048
# Neurons of a tile that may flip: with more than `FEW_FLIPS`, pairs of a share above
# `LARGE` are listed apart: a row's neurons may move as far as its largest pair takes them.
FEW_FLIPS, LARGE = 24, 1 / 16
# Pairs that are computed at a time.
TOGETHER = 64


class Flips(NamedTuple):
    """Lists of the neurons of a tile of rows that some column may flip.

    A neuron whose input changes by c moves by relu(u + c) - relu(u), another by c or 0.
    Pairs with large shares are listed one by one, with all their neurons; then the
    neurons that the other pairs may flip, each for all columns.
    """

    u: Float[Array, "rows d_ff"]
    z: Float[Array, "heads rows d_ff"]  # change by `PairRows.moved`
    turn: Float[Array, "heads rows"]
    share: Float[Array, "heads rows substitutions"]
    neurons: Float[Array, "heads d_ff substitutions"]
    large: Bool[Array, "rows substitutions"]  # pairs with large shares
    pairs: Int[Array, "large"]  # of these, in the flattened table
    num_pairs: Int[Array, ""]
    listed: Int[Array, "flips"]  # in the flattened table of rows and neurons
    number: Int[Array, ""]
    too_many: Bool[Array, ""]

    @staticmethod
    def of(
        u: Float[Array, "rows d_ff"],
        z: Float[Array, "heads rows d_ff"],
        turn: Float[Array, "heads rows"],
        share: Float[Array, "heads rows substitutions"],
        neurons: Float[Array, "heads d_ff substitutions"],
    ) -> "Flips":
        """`Flips` of a tile: neurons whose input may reach 0; empty lists if too many."""
        ends = neurons.min(axis=-1)[:, None], neurons.max(axis=-1)[:, None]
        far = jnp.maximum(*(jnp.abs(turn[..., None] * end + z) for end in ends))

        def near(most: Float[Array, "heads rows"]) -> Bool[Array, "rows d_ff"]:
            reach = (most[..., None] * far).sum(axis=0)
            # Rounding here is harmless: what it misses ends within rounding of zero. What
            # is no number is near.
            return (reach != 0) & ~(jnp.abs(u) > (1 + SLACK) * reach)

        def apart() -> tuple[Any, ...]:
            large = (share > LARGE).any(axis=0)
            (pairs,) = jnp.nonzero(large.ravel(), size=MOST_LARGE, fill_value=0)
            others = near(jnp.where(large, 0, share).max(axis=-1))
            return large, pairs.astype(jnp.int32), large.sum(dtype=jnp.int32), others

        everywhere = near(share.max(axis=-1))
        together = (
            jnp.zeros(share.shape[1:], bool),
            *(jnp.zeros(MOST_LARGE, jnp.int32), jnp.int32(0), everywhere),
        )
        crowded = everywhere.sum(dtype=jnp.int32) > FEW_FLIPS
        large, pairs, num_pairs, one = jax.lax.cond(crowded, apart, lambda: together)
        (listed,) = jnp.nonzero(one.ravel(), size=MOST_FLIPS, fill_value=0)
        number = one.sum(dtype=jnp.int32)
        too_many = (number > MOST_FLIPS) | (num_pairs > MOST_LARGE)
        number, num_pairs = (jnp.where(too_many, 0, x) for x in (number, num_pairs))
        given = u, z, turn, share, neurons, large, pairs, num_pairs
        return Flips(*given, listed.astype(jnp.int32), number, too_many)

    def bend_scores(
        self,
        scores: tuple[Float[Array, "rows substitutions"], ...],  # by head above
        by_neuron: Float[Array, "above d_ff substitutions"],
    ) -> tuple[Float[Array, "rows substitutions"], ...]:
        """Changes of second-layer scores, with the effects of flips added."""

        def of_pairs(k: Int[Array, ""], scores: tuple[Float[Array, "..."], ...]) -> Any:
            (j, i), bent = self.find_pairs(k)
            more = (by_neuron[:, :, i] * bent.T).sum(axis=1)
            return tuple(x.at[j, i].add(y) for x, y in zip(scores, more, strict=True))

        def of_neuron(
            k: Int[Array, ""], scores: tuple[Float[Array, "..."], ...]
        ) -> Any:
            j, f, bent = self.find(k)
            return tuple(
                x.at[j].add(by[f] * bent)
                for x, by in zip(scores, by_neuron, strict=True)
            )

        scores = jax.lax.fori_loop(0, self._batches, of_pairs, scores)
        return jax.lax.fori_loop(0, self.number, of_neuron, scores)

    def bend_values(
        self,
        new: tuple[Float[Array, "rows substitutions"], ...],  # weights, by head above
        so_far: Float[Array, "above d_ff substitutions"],
    ) -> Float[Array, "above d_ff substitutions"]:
        """`so_far`, sums over rows of new weight times flip effect, with this tile added."""

        def of_pairs(k: Int[Array, ""], so_far: Float[Array, "..."]) -> Any:
            (j, i), bent = self.find_pairs(k)
            weights = jnp.stack([x[j, i] for x in new])
            return so_far.at[:, :, i].add(weights[:, None] * bent.T)

        def of_neuron(
            k: Int[Array, ""], so_far: Float[Array, "..."]
        ) -> Float[Array, "..."]:
            j, f, bent = self.find(k)
            weighted = jnp.stack([x[j] for x in new]) * bent
            return so_far.at[:, f].add(weighted)

        so_far = jax.lax.fori_loop(0, self._batches, of_pairs, so_far)
        return jax.lax.fori_loop(0, self.number, of_neuron, so_far)

    def find(
        self, k: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""], Float[Array, "substitutions"]]:
        """Row and neuron of `listed[k]`, and flip effect by column, 0 for large pairs."""
        hidden = self.u.shape[1]
        j, f = self.listed[k] // hidden, self.listed[k] % hidden
        each = self.turn[:, j, None] * self.neurons[:, f] + self.z[:, j, f, None]
        change = (self.share[:, j] * each).sum(axis=0)
        return j, f, _bent(self.u[j, f], jnp.where(self.large[j], 0, change))

    @property
    def _batches(self) -> Int[Array, ""]:
        return -(-self.num_pairs // TOGETHER)

    def find_pairs(
        self, k: Int[Array, ""]
    ) -> tuple[
        tuple[Int[Array, "batch"], Int[Array, "batch"]], Float[Array, "batch d_ff"]
    ]:
        """Rows and columns of batch k of large pairs, and flip effects of their neurons."""
        index = k * TOGETHER + jnp.arange(TOGETHER, dtype=jnp.int32)
        at, width = slice_tile(self.pairs, index, 0), self.large.shape[1]
        j, i = at // width, at % width
        each = self.turn[:, j, None] * self.neurons[:, :, i].swapaxes(1, 2)
        change = (self.share[:, j, i, None] * (each + self.z[:, j])).sum(axis=0)
        change = jnp.where((index < self.num_pairs)[:, None], change, 0)
        return (j, i), _bent(self.u[j], change)


def _bent(
    u: Float[Array, "*shape"], z: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Effect of a flip: relu(u + z) - relu(u), less z where u > 0; 0 without a flip."""
    return RELU.change(u, z) - jnp.where(u > 0, z, 0)
