"""Upper bounds on embedding norms at one length, and on how far a symbol swap moves one.

Position encodings are read at one length, so that no encoding beyond it is evaluated. A
position table, or encodings few enough, are read block by block; others are bounded in
closed form. The rounding of their formulas is counted: that of a sine, a power, a sum of
terms, and of the model's float type.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from bounds.numbers.interval import interval, sqrt, upper
from bounds.numbers.rounding import SCALAR_STEPS, gamma, gamma_upper, unit_roundoff
from bounds.numbers.spectral import largest_row_norm
from jax_models import InputError, Transformer
from jax_models.model.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)

Symbols: TypeAlias = Float[np.ndarray, "symbols width"]

# Numbers in the classes of positions that are told apart.
MOST_CLASSES = 2**18
# Halves are exact below it.
LARGEST_EXACT = 2**52
# Numbers in one block of symbols against positions, and in all that are looked at.
_BLOCK, _MOST = 2**18, 2**24


def largest_sum_in_closed_form(
    symbols: Symbols, position: Sinusoidal | Coordinates, length: int, dtype: np.dtype
) -> float:
    """Upper bound on |e + p| over symbols e and the encodings p of all n positions."""
    # For one row of zeros as `symbols` it bounds |p|. Encodings are rounded to `dtype`;
    # the bound is infinite where one may leave its range.
    if isinstance(position, Coordinates):
        return _coordinates(symbols, position, length, dtype)
    position.encode(1, symbols.shape[1])  # refuses an odd width
    # A pair of coordinates is s (sin θ, cos θ) at every position, so with (a, b) those
    # of a symbol it is at most |(a, b)| + |s| long.
    half, scale = symbols.shape[1] // 2, abs(position.scale)
    off = scale * _rounding(1, dtype) + _smallest(dtype)
    if not scale + off < _largest(dtype):
        return math.inf
    with np.errstate(over="ignore"):
        pairs = np.hypot(symbols[:, :half], symbols[:, half:])
        reach = (pairs + scale) * (1 + gamma_upper(SCALAR_STEPS)) + _smallest(dtype)
    # Each coordinate is off by itself.
    apart = interval(off) * sqrt(interval(2 * half))
    return upper(interval(largest_row_norm(reach)) + apart)


def _coordinates(
    symbols: Symbols, position: Coordinates, length: int, dtype: np.dtype
) -> float:
    width, terms = symbols.shape[1], position.terms
    if length > _largest(np.dtype(np.float64)):
        raise InputError(
            "length n is beyond float64, in which the model's position terms are "
            "evaluated; use a shorter one"
        )
    # Refuses what has no value, a pole or another width, and what overflows at an end.
    ends = [_turning_points(t, length) for t in terms if isinstance(t, PowerTerm)]
    position.encode(length, width, np.concatenate([np.zeros(1), *ends]))
    # Residues and alternating signs repeat, with a common period. In each class of
    # positions modulo the period they are numbers, and the rest, powers of p, is
    # monotone on either side of p = 0: it is largest and smallest at an end or next to
    # 0. So every class lies in a box, and the sum with a symbol is longest at a corner.
    period = 2
    for term in terms:
        if isinstance(term, ResidueTerm):
            common = math.lcm(period, term.modulus)
            # A common period of too many classes is not followed: `_range` then takes
            # [0, 1].
            period = common if common * width <= MOST_CLASSES else period
    classes = np.arange(period)
    low, high, size = np.zeros((3, period, width))
    for term in terms:
        ends = _range(term, length, classes)
        low[:, term.coordinate] += ends[0]
        high[:, term.coordinate] += ends[1]
        size[:, term.coordinate] += np.abs(ends).max(axis=0)
    largest = 0.0
    for e in symbols:
        off = (size + np.abs(e)) * _rounding(len(terms), dtype) + _smallest(dtype)
        reach = np.maximum(np.abs(e + low - off), np.abs(e + high + off))
        if not np.max(size + off, initial=0.0) < _largest(dtype):
            return math.inf
        largest = max(largest, largest_row_norm(reach))
    return largest


def _range(
    term: PowerTerm | ResidueTerm, length: int, classes: Int[np.ndarray, "classes"]
) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
    """Lower and upper bound of a term's values, by class of positions modulo their number."""
    ones = np.ones(len(classes))
    # Beyond it p is not the float that it is computed as, and its classes are lost.
    exact = abs(term.offset) + length < LARGEST_EXACT
    if isinstance(term, ResidueTerm):
        if not exact or len(classes) % term.modulus:
            return 0 * ones, ones
        value = term.evaluate(length, classes)
        return value, value
    plain = dataclasses.replace(term, alternating=False)
    value = plain.evaluate(length, _turning_points(term, length))
    if not term.alternating:
        return value.min() * ones, value.max() * ones
    if not exact:
        return -np.abs(value).max() * ones, np.abs(value).max() * ones
    sign = np.where((classes + term.offset) % 2 == 0, 1.0, -1.0)
    ends = sign * value.min(), sign * value.max()
    return np.minimum(*ends), np.maximum(*ends)


def _turning_points(term: PowerTerm, length: int) -> Float[np.ndarray, "positions"]:
    """Positions among which a term's power of p is largest and smallest."""
    zero = math.floor(-term.offset)
    inside = {min(max(at, 0), length - 1) for at in (zero, zero + 1)}
    return np.asarray(sorted({0, length - 1} | inside), np.float64)


def _rounding(terms: int, dtype: np.dtype) -> float:
    """Upper bound on the relative error of a sum of terms in the model's float type."""
    # Sines and powers of the libraries are taken to be within 16 units in the last
    # place.
    return 2 * gamma_upper(terms + 2 * SCALAR_STEPS) + 2 * unit_roundoff(dtype)


def _smallest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).smallest_normal)


def _largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max)


@dataclasses.dataclass(frozen=True)
class EmbeddingNorms:
    """Upper bounds on norms of embeddings, over all symbols and the n positions.

    Attributes:
        norm: F_0, of symbol plus position.
        separate: max |position| + max |symbol|, which Hahn 2020 uses for F_0.
        distance: D, between the embeddings of two symbols that may be exchanged.
    """

    norm: float
    separate: float
    distance: float


def read_embeddings(model: Transformer, length: int) -> EmbeddingNorms:
    """Upper bounds on the norms of a model's embeddings at one length."""
    symbols = np.asarray(model.embedding, np.float64)
    formula = model.position
    if (
        formula is None
        or isinstance(formula, PositionTable)
        or length * model.width <= _MOST
    ):
        # Block by block, in memory that the length does not change; else in closed
        # form.
        place = together = 0.0
        for positions in _position_blocks(model, length):
            place = max(place, largest_row_norm(positions))
            together = max(together, _largest_sum(symbols, positions))
    else:
        question = formula, length, np.dtype(model.dtype)
        none = np.zeros((1, model.width))
        place = largest_sum_in_closed_form(none, *question)
        together = largest_sum_in_closed_form(symbols, *question)
    separate = upper(interval(largest_row_norm(symbols)) + interval(place))
    return EmbeddingNorms(
        norm=min(separate, together),
        separate=separate,
        distance=_largest_distance(symbols, model.substitutable),
    )


def _position_blocks(
    model: Transformer, length: int
) -> Iterator[Float[np.ndarray, "positions width"]]:
    """Yields blocks of all positions' encodings, in the model's floats; zeros for none."""
    if model.position is None:
        yield np.zeros((1, model.width))
        return
    if isinstance(model.position, PositionTable):
        read = np.asarray(model.position.encode(length, model.width)).__getitem__
    else:
        read = functools.partial(model.position.encode, length, model.width)
    rows = max(1, _BLOCK // max(model.embedding.shape))
    for start in range(0, length, rows):
        at = np.arange(start, min(start + rows, length))
        yield read(at).astype(model.dtype).astype(np.float64)


def _largest_sum(
    symbols: Symbols, positions: Float[np.ndarray, "positions width"]
) -> float:
    """Upper bound on |e + p| over all pairs, from |e|² + |p|² + 2 e·p."""
    # Scaled by a power of two, so that squares stay within the floats.
    scale = np.frexp(max(np.max(np.abs(symbols)), np.max(np.abs(positions))))[1]
    e, p = np.ldexp(symbols, -scale), np.ldexp(positions, -scale)
    of_e, of_p = (np.einsum("ij,ij->i", x, x) for x in (e, p))
    largest = float(np.max(of_e + of_p[:, None] + 2 * (p @ e.T), initial=0.0))
    reach = interval(largest_row_norm(e)) + interval(largest_row_norm(p))
    # Every term is an inner product of d terms and there are two more additions, so the
    # computed square is off by at most γ_{d+2} (|e| + |p|)².
    hidden = gamma(e.shape[1] + 2) * reach**2
    return upper(sqrt(interval(largest) + hidden) * interval(2) ** int(scale))


def _largest_distance(symbols: Symbols, substitutable: tuple[int, ...] | None) -> float:
    chosen = symbols if substitutable is None else symbols[list(substitutable)]
    largest = max((largest_row_norm(chosen - one) for one in chosen), default=0.0)
    # A float difference is within a factor 1 ± u of the true one.
    return upper(interval(largest) / (1 - gamma(1)))
