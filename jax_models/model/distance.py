"""Biases of the distance: what scores gain by how far a key stands from its query.

No substitution changes them. A new one is a class here, its row in `format/distance.py`
and its line of docs/model-format.md.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jax_models.arguments import expect_integer
from jax_models.errors import InputError
from jax_models.model.pytree import register

# Below it the power of a float finds where a bucket starts, but for one.
MOST_DISTANCE = 2**31


@register
@dataclasses.dataclass(frozen=True)
class Alibi:
    """-slope |i - j|, one slope for each head.

    Source:
        Press, Smith and Lewis 2022, section 3.
    """

    slopes: Float[Array, "heads"]

    def biases(
        self, rows: Int[Array, "rows"], keys: Int[Array, "keys"], length: int
    ) -> Float[Array, "heads rows keys"]:
        """Addition to scores."""
        del length
        apart = jnp.abs(rows[:, None] - keys[None, :]).astype(self.slopes.dtype)
        return -self.slopes[:, None, None] * apart


@register
@dataclasses.dataclass(frozen=True)
class DistanceBuckets:
    """A number for each head and bucket of distances: near ones alone, far ones together.

    Of b buckets, or b/2 for either side where both are told apart, the first half hold
    the distances 0, 1, …, and bucket e + m those from e (D/e)^(m/e') up: e = b/2 is that
    half, e' the other, D the largest distance that is told from larger ones. Where sides
    are not told apart what comes after the row is at distance 0.

    Raises:
        InputError: for a largest distance within the first half.

    Source:
        Raffel et al. 2020, section 2.1.
    """

    table: Float[Array, "heads buckets"]
    bidirectional: bool = dataclasses.field(default=True, metadata={"static": True})
    max_distance: int = dataclasses.field(default=128, metadata={"static": True})

    def __post_init__(self) -> None:
        distance = expect_integer(
            "distance_bias.max_distance", self.max_distance, 2, MOST_DISTANCE
        )
        object.__setattr__(self, "max_distance", distance)

    def biases(
        self, rows: Int[Array, "rows"], keys: Int[Array, "keys"], length: int
    ) -> Float[Array, "heads rows keys"]:
        """Addition to scores."""
        shape = (self.table.shape[1], self.bidirectional, self.max_distance)
        buckets = jnp.asarray(distance_buckets(length, *shape))
        which = keys[None, :] - rows[:, None] + (length - 1)
        return self.table[:, buckets.at[which].get(mode="clip")]


DistanceBias = Alibi | DistanceBuckets


@functools.lru_cache(maxsize=16)
def distance_buckets(
    length: int, count: int, bidirectional: bool, max_distance: int
) -> Int[np.ndarray, "offsets"]:
    """Returns the bucket of j - i = 1 - n, …, n - 1, formed of integers alone."""
    sides = 2 if bidirectional else 1
    if count % sides or count < 2 * sides:
        raise InputError(
            f"distance_bias has {count} buckets; expected an even number >= 4 for two "
            "sides, or at least 2 for one"
        )
    own = count // sides
    exact = own // 2
    if max_distance <= exact:
        raise InputError(
            f"distance_bias.max_distance = {max_distance}; expected more than {exact}, "
            "the distances that have a bucket each"
        )
    far = own - exact
    # Distance x is in bucket e + m or beyond where (x / e)^far >= (D / e)^m.
    starts = list(range(1, exact + 1))
    for m in range(1, far):
        least = max_distance**m * exact ** (far - m)
        x = max(starts[-1], int(exact * (max_distance / exact) ** (m / far)) - 1)
        while x**far < least:
            x += 1
        starts.append(x)
    apart = np.arange(1 - length, length)
    size = np.abs(apart) if bidirectional else np.maximum(-apart, 0)
    found = np.searchsorted(starts, size, side="right")
    return (found + own * (bidirectional & (apart > 0))).astype(np.int32)
