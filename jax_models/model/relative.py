"""Relative positions in scores: biases of the distance, and rotary positions.

Neither depends on tokens. A new bias is a class here, a row in `format/pieces.py` and a line
of docs/model-format.md.
"""

import dataclasses
import functools
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Shaped

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_kind,
    expect_number,
    expect_sequence,
)
from jax_models.errors import InputError
from jax_models.model.position import (
    exact_context,
    falling_frequencies,
    sine_and_cosine,
)
from jax_models.model.pytree import pytree, static

# Up to it a power of floats gives the start of a bucket to within one.
MOST_DISTANCE = 2**31


@pytree
class Alibi:
    """Bias of scores by distance: -slope |i - j|, one slope for each head.

    Source:
        Press, Smith and Lewis 2022, section 3.
    """

    slopes: Float[Array, "heads"]

    def biases(
        self, rows: Int[Array, "rows"], keys: Int[Array, "keys"], length: int
    ) -> Float[Array, "heads rows keys"]:
        """Returns the number added to the score of each row and key."""
        del length
        apart = jnp.abs(rows[:, None] - keys[None, :]).astype(self.slopes.dtype)
        return -self.slopes[:, None, None] * apart


@pytree
class DistanceBuckets:
    """Bias of scores by distance: a number for each head and bucket of distances.

    There are b buckets, or, if `bidirectional`, b for keys up to the row and b for keys after
    it. The first e = floor(b/2) hold one distance each, 0, 1, …; bucket e + m begins at
    distance e (D/e)^(m/(b - e)), D = `max_distance`; the last has no upper end. If not
    `bidirectional`, keys after the row count as distance 0.

    Raises:
        InputError: for a largest distance that is no integer from 2 to 2^31; when biases
            are computed, also for one of at most e, and for too few or odd buckets.

    Source:
        Raffel et al. 2020, section 2.1.
    """

    table: Float[Array, "heads buckets"]
    bidirectional: bool = static(default=True)
    max_distance: int = static(default=128)

    def __post_init__(self) -> None:
        distance = expect_integer(
            "distance_bias.max_distance", self.max_distance, 2, MOST_DISTANCE
        )
        vars(self).update(max_distance=distance)
        sides = self.bidirectional
        expect_kind("distance_bias.bidirectional", sides, bool, "true or false")

    def biases(
        self, rows: Int[Array, "rows"], keys: Int[Array, "keys"], length: int
    ) -> Float[Array, "heads rows keys"]:
        """Returns the number added to the score of each row and key."""
        shape = (self.table.shape[1], self.bidirectional, self.max_distance)
        buckets = jnp.asarray(distance_buckets(length, *shape))
        which = keys[None, :] - rows[:, None] + (length - 1)
        return self.table[:, buckets.at[which].get(mode="clip")]


DistanceBias = Alibi | DistanceBuckets


@functools.lru_cache(maxsize=16)
def distance_buckets(
    length: int, count: int, bidirectional: bool, max_distance: int
) -> Int[np.ndarray, "offsets"]:
    """Bucket of each offset j - i = 1 - n, …, n - 1 of key j from row i, by integers only."""
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
        # The power of floats only says where to begin; integers decide.
        x = max(starts[-1], int(exact * (max_distance / exact) ** (m / far)) - 1)
        while x**far < least:
            x += 1
        starts.append(x)
    apart = np.arange(1 - length, length)
    size = np.abs(apart) if bidirectional else np.maximum(-apart, 0)
    found = np.searchsorted(starts, size, side="right")
    return (found + own * (bidirectional & (apart > 0))).astype(np.int32)


Pairing = Literal["half", "interleaved"]
PAIRINGS: tuple[str, ...] = get_args(Pairing)


@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """Scaling of rotary frequencies: all over one factor, as if positions lay closer."""

    factor: float

    def __post_init__(self) -> None:
        _expect_numbers(self)

    def scaled(
        self, frequencies: Shaped[np.ndarray, "frequencies"]
    ) -> Shaped[np.ndarray, "frequencies"]:
        """Returns the frequencies that replace `Rotary.theta`'s `frequencies`."""
        return frequencies / self.factor


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Scaling of rotary frequencies: low ones over a factor, high ones as they are.

    Low and high are measured in turns within `original_length` positions: at most
    `low_frequency_factor` and at least `high_frequency_factor`; between them the scaled and
    the unscaled frequency are interpolated linearly.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_length: float

    def __post_init__(self) -> None:
        _expect_numbers(self)
        if self.low_frequency_factor >= self.high_frequency_factor:
            raise InputError(
                f"rotary.scaling.low_frequency_factor = {self.low_frequency_factor}; "
                f"expected less than high_frequency_factor = {self.high_frequency_factor}"
            )

    def scaled(
        self, frequencies: Shaped[np.ndarray, "frequencies"]
    ) -> Shaped[np.ndarray, "frequencies"]:
        """Returns the frequencies that replace `Rotary.theta`'s `frequencies`."""
        turns = self.original_length * frequencies / (2 * exact_context().pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        kept = np.clip((turns - low) / (high - low), 0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@dataclasses.dataclass(frozen=True)
class ListedFrequencies:
    """Rotary frequencies listed in place of theta's: those that a checkpoint rounded."""

    frequencies: tuple[float, ...]

    def __post_init__(self) -> None:
        where = "rotary.scaling.frequencies"
        given = expect_sequence(where, self.frequencies, "a list of numbers")
        vars(self).update(frequencies=tuple(expect_number(where, x, 0) for x in given))

    def scaled(
        self, frequencies: Shaped[np.ndarray, "frequencies"]
    ) -> Shaped[np.ndarray, "frequencies"]:
        """Returns the listed frequencies, whose number must be that of `frequencies`."""
        if len(self.frequencies) != len(frequencies):
            raise InputError(
                f"rotary.scaling.frequencies lists {len(self.frequencies)}; expected "
                f"{len(frequencies)}, half of rotary.dims"
            )
        return np.array(self.frequencies)


Scaling = LinearScaling | Llama3Scaling | ListedFrequencies


@dataclasses.dataclass(frozen=True)
class Rotary:
    """Rotary positions: rotations of the first `dims` coordinates of queries and keys.

    Frequencies are theta^(-2m/dims), m = 0 … dims/2 - 1, changed by `scaling`; at
    position p pair m is turned by p times frequency m. Pair m is coordinates (m, m + dims/2)
    with the pairing "half", and (2m, 2m + 1) with "interleaved".

    Raises:
        InputError: for odd dims, numbers out of range, an unknown pairing, and listed
            frequencies of another number than dims/2.
    """

    dims: int
    theta: float = 10000.0
    pairing: Pairing = "half"
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        dims = expect_integer("rotary.dims", self.dims, 2)
        if dims % 2:
            raise InputError(f"rotary.dims = {dims}; expected an even number")
        theta = expect_number("rotary.theta", self.theta, 0, above=True)
        vars(self).update(dims=dims, theta=theta)
        choose_name("rotary.pairing", self.pairing, PAIRINGS)
        if self.scaling is not None:
            self.scaling.scaled(np.ones(dims // 2))  # refuses another number of them

    @property
    def frequencies(self) -> Shaped[np.ndarray, "frequencies"]:
        """Frequencies [dims / 2] in radians per position, mpmath numbers unless listed."""
        found = falling_frequencies(self.theta, self.dims)
        return found if self.scaling is None else self.scaling.scaled(found)

    def turn(
        self,
        rows: Float[Array, "... rows d_k"],
        positions: Int[Array, "#rows"],
        length: int,
    ) -> Float[Array, "... rows d_k"]:
        """Returns queries or keys `rows` turned by `positions`; linear in the rows."""
        # The coordinates (a, b) of pair m at position p, as the complex number a + ib, are
        # multiplied by e^(i p f_m): the inner product of a query and a key depends on their
        # distance.
        tables = _tables(self, length, np.dtype(rows.dtype))
        cos, sin = (jnp.asarray(x).at[positions].get(mode="clip") for x in tables)
        a, b = self._pairs(rows)
        turned = a * cos - b * sin, b * cos + a * sin
        if self.pairing == "half":
            joined = jnp.concatenate(turned, axis=-1)
        else:
            joined = jnp.stack(turned, axis=-1).reshape(*rows.shape[:-1], self.dims)
        # Coordinates beyond `dims` are not turned.
        return jnp.concatenate([joined, rows[..., self.dims :]], axis=-1)

    def _pairs(
        self, rows: Float[Array, "... turned"]
    ) -> tuple[Float[Array, "... frequencies"], Float[Array, "... frequencies"]]:
        half = self.dims // 2
        if self.pairing == "half":
            return rows[..., :half], rows[..., half : self.dims]
        return rows[..., 0 : self.dims : 2], rows[..., 1 : self.dims : 2]


@functools.lru_cache(maxsize=16)
def _tables(
    rotary: Rotary, length: int, dtype: np.dtype
) -> tuple[
    Float[np.ndarray, "tokens frequencies"], Float[np.ndarray, "tokens frequencies"]
]:
    """Cosines and sines of the rotation angles of pairs at all positions [n, dims/2]."""
    # On the host, as if rounded once to float64, and then cast, as position formulas are.
    found = sine_and_cosine(np.arange(length), rotary.frequencies).astype(dtype)
    sine, cosine = np.split(found, 2, axis=1)
    return cosine, sine


def _expect_numbers(scaling: LinearScaling | Llama3Scaling) -> None:
    for name, value in tuple(vars(scaling).items()):
        number = expect_number(f"rotary.scaling.{name}", value, 0, above=True)
        vars(scaling)[name] = number
