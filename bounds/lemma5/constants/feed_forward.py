"""Constants of one feed-forward block: Lipschitz constants, and its value at zero."""

import functools
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from mpmath import MPContext

from bounds.lemma5.closed_form import feed_forward_lipschitz
from bounds.numbers.interval import interval, upper
from bounds.numbers.rounding import gamma
from bounds.numbers.spectral import Enclosure, frobenius_upper
from bounds.readings.rules import no_rule
from jax_models.model.rows import Operation, Relu, Steady


@runtime_checkable
class BentMap(Protocol):
    """A map after an activation: a feed-forward block, or a form of one."""

    @property
    def bend(self) -> Steady:
        """The activation."""
        ...

    @property
    def w2(self) -> Any:
        """The map [d, f]."""
        ...


def path_gain(block: BentMap, into: Enclosure) -> float:
    """Upper bound on the Lipschitz constant of z -> W2 act(M z + b), M = `into`.

    λ π with λ the largest slope of the activation and π = min_T |W2 T^{-1}| |T M| over
    T = I and the T that balances the columns of W2 with the rows of M,
    T_u = √(|W2[:,u]|/|M[u,:]|).
    """
    return upper(interval(block.bend.steepest) * interval(_product(block, into)))


def residual_lipschitz(block: BentMap, into: Enclosure) -> float:
    """Upper bound on the Lipschitz constant of z -> z + W2 act(M z + b).

    min(1 + λ π, |I + W2 M/2| + (λ - 1/2) π), λ and π as in `path_gain`.
    """
    product = Enclosure(np.asarray(block.w2, np.float64)) @ into
    width = len(product.middle)
    half = product.scaled(np.full(width, 0.5)) + Enclosure(np.eye(width))
    bound = feed_forward_lipschitz(
        _product(block, into), half.norm_upper(), slope=block.bend.steepest
    )
    return bound.value


def _product(block: BentMap, into: Enclosure) -> float:
    w2 = Enclosure(np.asarray(block.w2, np.float64)).transposed
    used = np.any(w2.middle != 0, axis=1)  # a neuron that nothing leaves does nothing
    if not np.any(used):
        return 0.0
    w2, into = Enclosure(w2.middle[used]), Enclosure(into.middle[used], into.radius)
    plain = upper(interval(w2.norm_upper()) * interval(into.norm_upper()))
    # T need not be the best one exactly: every positive T gives a bound.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        columns, rows = _row_sizes(w2.middle), _row_sizes(into.middle)
        rows = np.maximum(rows, np.min(rows[rows > 0], initial=1.0))
        balance = np.sqrt(columns) / np.sqrt(rows)
        inverse = 1 / balance
    if not np.all(np.isfinite(balance) & np.isfinite(inverse)):
        return plain
    scaled = interval(w2.scaled(inverse).norm_upper())
    scaled *= interval(into.scaled(balance).norm_upper())
    # T^{-1} is the computed inverse exactly; then T is the balance but for a rounding.
    return min(plain, upper(scaled * (1 + gamma(1))))


def _row_sizes(matrix: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows"]:
    """Norms of the rows, roughly, without a square that leaves the floats."""
    largest = np.max(np.abs(matrix), axis=1)
    unit = np.where(largest > 0, largest, 1.0)
    return largest * np.linalg.norm(matrix / unit[:, None], axis=1)


@functools.singledispatch
def activated(operation: Operation, z: Enclosure) -> Enclosure:
    """Enclosure of an activation's values."""
    raise no_rule("activated", operation)


@activated.register
def _(operation: Relu, z: Enclosure) -> Enclosure:
    return Enclosure(np.maximum(z.middle, 0.0), z.radius)


@activated.register
def _(operation: Steady, z: Enclosure) -> Enclosure:
    context: Any = MPContext()
    context.dps = 30
    flat = [context.mpf(float(x)) for x in z.middle.reshape(-1)]
    middle = np.reshape(
        [float(operation.exact(x, context)) for x in flat], z.middle.shape
    )
    # 30 digits are far finer than the float they are rounded to.
    rounded = gamma(2) * interval(frobenius_upper(middle))
    moved = interval(operation.steepest) * interval(z.radius)
    return Enclosure(middle, upper(rounded + moved))
