"""Spectral norms from above: a float that no rounding leaves below the true norm.

A computed singular value is an approximation without a sign. What is proved here needs
no trust in the algorithm that found it, only that a product of float matrices is off by
at most γ_k |A||B| entry by entry, k the inner dimension (`rounding.gamma`; Higham 2002,
section 3.5). With U, s, V whatever a singular value decomposition of A returned,

    |A| <= |U| max(s) |V| + |A - U diag(s) V^T|_F,    |U|² <= 1 + |U^T U - I|_F,

and every Frobenius norm on the right is computed, then enlarged by what its own
rounding can have hidden: for the residual γ_{k+1} |U diag(s)|_F |V|_F, for the products
U^T U and V^T V γ |U|_F² and γ |V|_F². The result exceeds the norm by about k² u,
relatively: 1e-14 at k = 10, 1e-10 at k = 1000.

Matrices that are products of weights are not floats. `Enclosure` carries a float matrix
with a bound on its Frobenius distance from the true one.
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from bounds.numbers.interval import Interval, interval, minimum, sqrt, upper
from bounds.numbers.rounding import gamma

# Far above what underflow can take from a product of floats, or from the square of one
# once it is scaled; beside a largest entry of about one it is nothing.
_UNDERFLOW = 2.0**-1000
_SMALLEST_NORMAL = 2.0**-1022


@dataclasses.dataclass(frozen=True, eq=False)
class Enclosure:
    """A real matrix, known by a float matrix and an upper bound on their distance."""

    middle: Float[np.ndarray, "rows columns"]
    radius: float = 0.0  # bound on the Frobenius norm of the true matrix minus `middle`

    def __matmul__(self, other: "Enclosure") -> "Enclosure":
        """The product; its radius covers both factors' radii and the rounding."""
        left, right = (interval(frobenius_upper(x.middle)) for x in (self, other))
        mine, its = interval(self.radius), interval(other.radius)
        with np.errstate(over="ignore", invalid="ignore"):
            middle = self.middle @ other.middle
        depth = self.middle.shape[-1]
        # An entry is off by γ_k |A||B|, k the inner dimension, and norms multiply; an
        # entry that underflows by less than the smallest normal number for each of its
        # terms.
        rounded = gamma(depth) * left * right
        if rounded.b > 0:
            rounded += depth * middle.size * interval(_SMALLEST_NORMAL)
        return Enclosure(middle, upper(rounded + mine * (right + its) + left * its))

    def __add__(self, other: "Enclosure") -> "Enclosure":
        """The sum; its radius covers both radii and the rounding of the float sum."""
        with np.errstate(over="ignore", invalid="ignore"):
            middle = self.middle + other.middle
        rounded = gamma(1) * interval(frobenius_upper(middle))
        return Enclosure(
            middle, upper(rounded + interval(self.radius) + interval(other.radius))
        )

    def scaled(self, factors: Float[np.ndarray, "rows"]) -> "Enclosure":
        """The matrix with its rows multiplied by positive floats (m,)."""
        with np.errstate(over="ignore"):
            middle = factors[:, None] * self.middle
        rounded = gamma(1) * interval(frobenius_upper(middle))
        if np.any(self.middle):
            rounded += middle.size * interval(_SMALLEST_NORMAL)
        # Row norms scale by at most the largest factor.
        carried = interval(float(np.max(factors, initial=0.0))) * interval(self.radius)
        return Enclosure(middle, upper(rounded + carried))

    @property
    def transposed(self) -> "Enclosure":
        """The transposed matrix."""
        return Enclosure(self.middle.T, self.radius)

    def norm_upper(self) -> float:
        """Returns an upper bound on the true matrix's spectral norm."""
        return upper(interval(norm_upper(self.middle)) + interval(self.radius))


def norm_upper(matrix: Float[np.ndarray, "rows columns"]) -> float:
    """Upper bound on the spectral norm of a matrix; infinite if an entry is not finite.

    >>> norm_upper(np.array([[3.0, 0.0], [0.0, 4.0]])) - 4 < 1e-13
    True
    """
    # Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5;
    # see the top of this module. An entry that is not finite is an overflow of unknown
    # true value.
    matrix = np.asarray(matrix, np.float64)
    digest = hashlib.blake2b(matrix.tobytes(), key=repr(matrix.shape).encode()).digest()
    if digest not in _NORMS:
        if len(_NORMS) == MOST_NORMS:
            _NORMS.clear()
        _NORMS[digest] = _over_power_of_two(matrix, _spectral)
    return _NORMS[digest]


# Of matrices that were met, by a digest: a model is certified for many inputs and lengths.
_NORMS: dict[bytes, float] = {}
MOST_NORMS = 4096


def frobenius_upper(matrix: Float[np.ndarray, "..."]) -> float:
    """Upper bound on an array's Frobenius norm; infinite if an entry is not finite."""
    return _over_power_of_two(matrix, _frobenius)


def largest_row_norm(rows: Float[np.ndarray, "rows columns"]) -> float:
    """Upper bound on the rows' largest Euclidean norm; infinite if an entry is not finite."""
    return _over_power_of_two(rows, _largest_row)


def _over_power_of_two(
    matrix: Float[np.ndarray, "..."], norm: Callable[[np.ndarray], Interval]
) -> float:
    """Upper bound on `norm` of a matrix, which is scaled by 2^-e only to compute it."""
    matrix = np.asarray(matrix, np.float64)
    largest = float(np.max(np.abs(matrix), initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return math.inf if np.any(matrix) else 0.0
    exponent = math.frexp(largest)[1]
    # In two steps, since 2^-e may itself be out of range.
    half = exponent // 2
    scaled = np.ldexp(np.ldexp(matrix, -half), half - exponent)
    return upper(norm(scaled) * interval(2) ** exponent)


def _spectral(scaled: Float[np.ndarray, "..."]) -> Interval:
    """Upper bound on the spectral norm, for entries of modulus about one or less."""
    # The Frobenius norm stands where the decomposition fails, and is exact for a
    # vector.
    norm = _frobenius(scaled)
    if min(scaled.shape) > 1:
        norm = minimum(norm, _by_decomposition(scaled))
    return norm


def _largest_row(scaled: Float[np.ndarray, "..."]) -> Interval:
    """Upper bound on the largest norm of a row, for entries of modulus about one or less."""
    # No square leaves the floats once the largest entry is about one.
    squares = np.einsum("ij,ij->i", scaled, scaled)
    return _root(float(np.max(squares)), scaled.shape[1])


def _frobenius(scaled: Float[np.ndarray, "..."]) -> Interval:
    """Upper bound on the Frobenius norm, for entries of modulus about one or less."""
    return _root(float(np.sum(scaled * scaled)), scaled.size)


def _root(squares: float, count: int) -> Interval:
    """Upper bound on the root of a sum of `count` squares, computed as `squares`."""
    remaining, underflow = _lost(count)
    return sqrt(interval(squares) / remaining + underflow)


@functools.cache
def _lost(count: int) -> tuple[Interval, Interval]:
    """Least ratio of a computed to the true sum of `count` squares, and most underflow."""
    return 1 - gamma(count + 1), count * interval(_UNDERFLOW)


def _by_decomposition(scaled: Float[np.ndarray, "..."]) -> Interval:
    try:
        u, s, vt = np.linalg.svd(scaled, full_matrices=False)
    except np.linalg.LinAlgError:
        return interval(math.inf)
    sizes = _orthogonal(u) * _orthogonal(vt.T)
    return sizes * interval(float(np.max(s))) + residual(scaled, u, s, vt)


def residual(
    scaled: Float[np.ndarray, "rows columns"],
    u: Float[np.ndarray, "rows rank"],
    s: Float[np.ndarray, "rank"],
    vt: Float[np.ndarray, "rank columns"],
) -> Interval:
    """Upper bound on |A - U diag(s) V^T|_F, the rounding of the product included."""
    # `scaled` is A, with entries of modulus about one or less; `vt` is V^T.
    left = u * s
    # The subtraction rounds once, the product by γ_{k+1}: k terms, and U scaled by s.
    found = _frobenius(scaled - left @ vt) / (1 - gamma(1))
    return found + gamma(len(s) + 1) * _frobenius(left) * _frobenius(vt)


def _orthogonal(basis: Float[np.ndarray, "rows rank"]) -> Interval:
    """Upper bound on the norm of a matrix whose columns are nearly orthonormal."""
    excess = _frobenius(basis.T @ basis - np.eye(basis.shape[1])) / (1 - gamma(1))
    # |U|² <= 1 + |U^T U - I|, computed and enlarged by the rounding of the product.
    rounded = gamma(len(basis)) * _frobenius(basis) ** 2
    return sqrt(1 + excess + rounded)
