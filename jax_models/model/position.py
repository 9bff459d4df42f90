"""Position encodings: a table, the sinusoidal formula, or sums of coordinate terms.

Formulas are evaluated on the host, sines as if rounded once to float64, and then cast, so
that a float32 model and a float64 one encode the same numbers. Positions j count from 0;
terms use p = j + offset with offset 1 by default. The argument `at` lists the positions to
encode; None stands for all.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Shaped

from jax_models.arguments import (
    MAX_LENGTH,
    expect_integer,
    expect_integers,
    expect_kind,
    expect_number,
)
from jax_models.errors import InputError
from jax_models.model.pytree import pytree, static

# Positions; those beyond exact integers are floats.
Places: TypeAlias = Int[np.ndarray, "rows"] | Float[np.ndarray, "rows"]
# Encodings of positions, and one term of theirs, in float64.
Encoded: TypeAlias = Float[np.ndarray, "rows width"]
Terms: TypeAlias = Float[np.ndarray, "rows"]
# An angle j f formed in float64 is off by j u, and so are its sine and cosine. Here f is
# known to 60 digits, and its share of a whole turn is split into 22 bits, 22 more and the
# rest, so that the products of the first two with j < 2^31 are exact, and whole turns drop
# out of them. What is found is off by a few u, and by a few u of itself where j < 2^22.
PART_BITS = 22
DIGITS = 60


@functools.cache
def exact_context() -> Any:
    """Returns the mpmath context in which frequencies are formed."""
    import mpmath

    context: Any = mpmath.MPContext()
    context.dps = DIGITS
    return context


def falling_frequencies(base: float, width: int) -> Shaped[np.ndarray, "frequencies"]:
    """Returns base^(-2m/width), m = 0 … width/2 - 1, as mpmath numbers of 60 digits."""
    exact = exact_context().mpf
    return np.array([exact(base) ** (exact(-2 * m) / width) for m in range(width // 2)])


def sine_and_cosine(
    places: Int[np.ndarray, "positions"],
    frequencies: Shaped[np.ndarray, "frequencies"] | Sequence[Any],
) -> Float[np.ndarray, "positions coordinates"]:
    """Returns [sin(j f), cos(j f)] for positions j in `places`, frequencies f in radians."""
    context, count = exact_context(), len(frequencies)
    scale = 2.0**PART_BITS
    j = places.astype(np.float64)
    found = np.empty((j.size, 2 * count))
    for column, frequency in enumerate(frequencies):
        turns = context.mpf(frequency) / (2 * context.pi)
        # j is whole, so that whole turns of f are whole turns of j f.
        turns = turns - context.floor(turns)
        first = context.floor(turns * scale) / scale
        second = context.floor((turns - first) * scale**2) / scale**2
        whole = (j * float(first)) % 1.0 + (j * float(second)) % 1.0  # exact
        rest = j * float(turns - first - second)
        found[:, column] = _sine(whole, rest)
        # cos(x) = sin(x + a quarter turn), and adding 1/4 is exact too.
        found[:, count + column] = _sine(whole + 0.25, rest)
    return found


def _sine(
    turns: Float[np.ndarray, "tokens"], rest: Float[np.ndarray, "tokens"]
) -> Float[np.ndarray, "tokens"]:
    """sin(2 pi (turns + rest)), where `turns` is exact and reduced by half turns."""
    half = np.round(2 * turns)
    # At most a quarter turn: pi enters with a small factor, and its rounding with it.
    small = np.sin(2 * np.pi * (turns - half / 2 + rest))
    # sin(x + pi) = -sin(x).
    return np.where(half % 2 == 0, small, -small)


@pytree
class PositionTable:
    """Position encoding by a table [n_max, d]; its first n rows serve length n."""

    table: Float[Array, "n_max d"]
    depends_on_length = False

    def encode(self, length: int, width: int) -> Float[Array, "tokens d_embedding"]:
        """Returns the first `length` rows; raises `InputError` if there are fewer."""
        self.require_length(length)
        return self.table[:length]

    def require_length(self, length: int) -> None:
        """Raises `InputError` if the table is shorter than `length`."""
        if length > self.table.shape[0]:
            raise InputError(
                f"length n = {length} is beyond the model's position table, which has "
                f"{self.table.shape[0]} rows; use n <= {self.table.shape[0]} or a model "
                "whose position encoding is a formula"
            )


@pytree
class PairTable(PositionTable):
    """Position table of texts, and of text pairs, parted by the first separator."""

    # The second token type's row less the first's [d]: added to the rows of all positions
    # after the first separator symbol.
    second: Float[Array, "d"]
    separator: int = static()

    def of_input(self, tokens: Int[Array | np.ndarray, "tokens"]) -> PositionTable:
        """Position table for `tokens`: `table`, plus `second` behind the first separator."""
        # NumPy tokens: no program is compiled for their length.
        on: Any = np if isinstance(tokens, np.ndarray) else jnp
        here = on.asarray(tokens == self.separator, np.int32)
        behind = on.cumsum(here, dtype=np.int32) > here
        self.require_length(tokens.shape[0])
        table, second = on.asarray(self.table), on.asarray(self.second)
        second = on.where(behind[:, None], second, on.zeros_like(second))
        return PositionTable(jax.device_put(table[: tokens.shape[0]] + second))


@pytree
class Sinusoidal:
    """Position encoding scale * (sin, cos)(j / base^(2m/d)): d/2 sines, then d/2 cosines."""

    base: float = static(default=10000.0)
    scale: float = static(default=1.0)
    depends_on_length = False

    def __post_init__(self) -> None:
        base = expect_number("position.base", self.base, 0, above=True)
        vars(self).update(base=base, scale=expect_number("position.scale", self.scale))

    def encode(self, length: int, width: int, at: Places | None = None) -> Encoded:
        """Returns the encoding in float64, of all positions or those in `at`."""
        if width % 2:
            raise InputError(
                f"sinusoidal positions need an even width, got d = {width}"
            )
        places = np.asarray(_places(length, at))
        encoding = sine_and_cosine(places, falling_frequencies(self.base, width))
        encoding *= self.scale
        return encoding


@dataclasses.dataclass(frozen=True)
class PowerTerm:
    """Position term scale p^position_power n^length_power, times (-1)^p if alternating."""

    coordinate: int
    scale: float = 1.0
    position_power: float = 0.0
    length_power: float = 0.0
    alternating: bool = False
    offset: float = 1.0

    @property
    def depends_on_length(self) -> bool:
        """Whether the term at a position depends on n, or some lengths have a pole."""
        # p = j + offset runs through 0 at some j, if the length has such a position.
        pole = self.position_power < 0 and self.offset < 0
        return self.length_power != 0 or pole

    def __post_init__(self) -> None:
        coordinate = expect_integer("coordinate", self.coordinate, 0)
        vars(self).update(coordinate=coordinate)
        expect_kind("alternating", self.alternating, bool, "true or false")
        for name in ("scale", "position_power", "length_power", "offset"):
            vars(self)[name] = expect_number(name, getattr(self, name))

    def evaluate(self, length: int, at: Places | None = None) -> Terms:
        """Returns the term at each position; raises `InputError` where it is undefined."""
        places = _places(length, at)
        p = places + self.offset
        if self.alternating and not self.offset.is_integer():
            raise InputError(
                f"position term for coordinate {self.coordinate}: an alternating sign "
                f"needs an integer offset, got {self.offset}"
            )
        if self.position_power < 0 and np.any(p == 0):
            raise InputError(
                f"position term for coordinate {self.coordinate} has a pole: p = 0 at "
                f"position {int(places[np.argmin(np.abs(p))])} with power "
                f"{self.position_power}"
            )
        if not self.position_power.is_integer() and np.any(p < 0):
            raise InputError(
                f"position term for coordinate {self.coordinate}: the power "
                f"{self.position_power} of a negative p is not real"
            )
        n, a, b = np.float64(length), self.position_power, self.length_power
        # A quotient rounds once where a product with a reciprocal rounds twice.
        if a < 0:
            value = self.scale * n**b / p**-a
        else:
            value = self.scale * p**a / n**-b if b < 0 else self.scale * p**a * n**b
        return value * np.where(p % 2 == 0, 1.0, -1.0) if self.alternating else value


@dataclasses.dataclass(frozen=True)
class ResidueTerm:
    """Position term that is 1 where p mod modulus is one of the residues, else 0."""

    coordinate: int
    modulus: int
    residues: tuple[int, ...]
    offset: float = 1.0
    depends_on_length = False

    def __post_init__(self) -> None:
        vars(self).update(
            coordinate=expect_integer("coordinate", self.coordinate, 0),
            modulus=expect_integer("modulus", self.modulus, 1, math.inf),
            residues=tuple(expect_integers("residues", self.residues, 0, math.inf)),
            offset=expect_number("offset", self.offset),
        )

    def evaluate(self, length: int, at: Places | None = None) -> Terms:
        """Returns 1 where p mod modulus is in `residues`, else 0, for each position."""
        p = _places(length, at) + self.offset
        return np.isin(p % self.modulus, self.residues).astype(np.float64)


@pytree
class Coordinates:
    """Position encoding: a sum of terms, each added to one coordinate of every position."""

    terms: tuple[PowerTerm | ResidueTerm, ...] = static(default=())

    @property
    def depends_on_length(self) -> bool:
        """Whether a position's encoding depends on n, or some lengths have none."""
        return any(term.depends_on_length for term in self.terms)

    def encode(self, length: int, width: int, at: Places | None = None) -> Encoded:
        """Returns the encoding in float64, of all positions or those in `at`."""
        places = _places(length, at)
        encoding = np.zeros((len(places), width))
        for term in self.terms:
            where = "coordinate of a position term"
            expect_integer(where, term.coordinate, 0, width - 1)
            # What overflows is refused below, in words.
            with np.errstate(over="ignore", invalid="ignore"):
                encoding[:, term.coordinate] += term.evaluate(length, places)
        if not math.isfinite(float(np.abs(encoding).max(initial=0.0))):
            raise InputError(f"position encoding overflows float64 at length {length}")
        return encoding


Position = PositionTable | Sinusoidal | Coordinates


def longest_length(position: Position | None) -> int:
    """Returns the number of rows of a position table, else `MAX_LENGTH`."""
    table = isinstance(position, PositionTable)
    return position.table.shape[0] if table else MAX_LENGTH


def extend_table(
    position: Position | None, length: int, padded: int
) -> Position | None:
    """Encoding for `padded` positions; a table gets zero rows behind its own."""
    if not isinstance(position, PositionTable):
        return position
    position.require_length(length)
    # Zero rows serve padding only, which no row sees.
    more = max(0, padded - position.table.shape[0])
    table = np.pad(np.asarray(position.table), ((0, more), (0, 0)))
    return dataclasses.replace(position, table=jnp.asarray(table))


def _places(length: int, at: Places | None) -> Places:
    return np.arange(length) if at is None else at
