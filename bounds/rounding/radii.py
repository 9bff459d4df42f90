"""Rounding radii of results, from their changes in runs with moved inputs.

A radius is an estimated bound on the rounding of a result. A moved input differs by a
few roundings, and the change of a result is its move. With v a result's magnitude and m
its largest move in some runs, over the v above 1e-3 of the largest let w be the median
of m / v, at least 16 u, and m_0 the median of m. Then

    R = max(4 (m + w v), floor),             of a change that was computed as a change,
    R = max(4 (m + max(w v, m_0)), floor),   of a difference of two results,
    floor = max(2^10 n t A, c v_max),

with u the unit roundoff of the float type, t its least normal number, n the terms of a
sum that may underflow, A the largest magnitude among the program's inputs, at least 1,
v_max the largest v, and c = 2^-60 of single precision and below, 2^-500 of double.

This is a model of rounding, tested in docs/precision.md, and no proof: it supposes that
a number that rounds only inside the program rounds like one whose rounding was redrawn.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.rounding.moved_inputs import RUNS, float_leaves, move_alike, unit_of
from jax_models import InputError
from jax_models.run.perturbation import UNITS

# A bound of every operation's rounding, carried through the traced program, holds too, but
# costs three to four times the time and is 10^4 to 10^8 times the error at two layers: each
# product loses a factor of sqrt(d) where bounds go entry by entry.
# Radius over farthest move.
RATIO = 4.0
# Share of the largest size below which sizes do not count for the usual move.
SMALL = 1e-3
# Least numbers of the type for each of the terms that may underflow.
UNDERFLOWS = 2.0**10


def usual_radii(
    sizes: Float[np.ndarray, "*results"],
    moves: Float[np.ndarray, "*results"],
    dtype: Any,
    length: int,  # n, terms of a sum that may underflow
    magnitude: float,  # A
    *,
    subtracted: bool,  # results are differences of two
    largest: float | None = None,  # v_max, where these are not all results
) -> Float[np.ndarray, "*results"]:
    """Radii R of results from their magnitudes v and moves m; infinite where R is NaN."""
    info = jnp.finfo(dtype)
    finite = np.isfinite(sizes)
    if largest is None:
        largest = float(sizes[finite].max(initial=0.0))
    large = finite & (sizes > SMALL * largest)
    found = np.median(moves[large] / sizes[large]) if large.any() else 0.0
    # At least sixteen roundings, even where the runs happened to move nothing.
    relative = max(float(found), UNITS * float(info.eps) / 2)
    absolute = np.median(moves[large]) if subtracted and large.any() else 0.0
    share = 2.0**-500 if info.bits == 64 else 2.0**-60
    underflows = UNDERFLOWS * length * magnitude * float(info.tiny)
    with np.errstate(over="ignore", invalid="ignore"):
        usual = np.maximum(relative * sizes, absolute)
        radii = np.maximum(RATIO * (moves + usual), max(underflows, share * largest))
    # Infinite moves and sizes give NaN, and bound nothing.
    return np.where(np.isnan(radii), np.inf, radii)


def farthest(
    shape: tuple[int, ...], moves: Iterable[Float[np.ndarray, "..."]]
) -> Float[np.ndarray, "..."]:
    """Largest move m of each result over some runs; infinite where one is NaN."""
    found = functools.reduce(np.maximum, moves, np.zeros(shape))
    return np.where(np.isnan(found), np.inf, found)


def largest_magnitude(tree: Any) -> float:
    """Largest finite magnitude A among a pytree's floats, at least 1."""
    floats = (np.abs(np.asarray(x, np.float64)) for x in float_leaves(tree))
    return max(
        (float(x.max(initial=1.0, where=np.isfinite(x))) for x in floats), default=1.0
    )


def moved(
    function: Callable[..., Any], params: Any, *args: Any
) -> tuple[Float[np.ndarray, "*result"], Float[np.ndarray, "*result"]]:
    """Result of a function of its parameters, and the radius of its rounding.

    The function runs once, and four times more with every float of `params` moved;
    radii are four times those of a difference in `bounds.rounding.radii`, with v the
    magnitude of an entry. A compiled function is compiled once.

    Args:
        function: of `params` and the arguments, to an array of floats; deterministic.
        params: any pytree with an array of floats.
        args: other arguments, which are not moved.

    Returns:
        The array in float64, and its radii, of its shape.

    Raises:
        InputError: there is nothing to move, or the result is no array of floats.
    """
    if not float_leaves(params):
        raise InputError(
            "params has no floats, so that nothing can be moved; expected arrays of floats"
        )

    def call(params: Any) -> Float[np.ndarray, "*result"]:
        found = np.asarray(function(params, *args))
        if not jnp.issubdtype(found.dtype, jnp.floating):
            raise InputError(
                f"the function returned an array of {found.dtype}; expected floats"
            )
        return found

    found = call(params)
    value = found.astype(np.float64)

    # Parameters of a wider type than the result's may be rounded inside.
    # The rounding inside a function is unknown, and its sums with large numbers may round
    # alike as long as parameters move by a few roundings: they go by sqrt(u) instead.
    unit = max(unit_of(params), float(jnp.finfo(found.dtype).eps) / 2)

    def again(run: int, sign: int) -> Float[np.ndarray, "*result"]:
        other = move_alike(params, run, lambda own: sign * math.sqrt(max(own, unit)))
        return call(other).astype(np.float64)

    def move(run: int) -> Float[np.ndarray, "*result"]:
        up, down = again(run, 1) - value, again(run, -1) - value
        with np.errstate(invalid="ignore"):
            # The rounding of three evaluations and a curvature times u; then the effect of
            # sixteen roundings of the parameters.
            bent, along = np.abs(up + down), np.abs(up - down) / 2
            return np.maximum(bent, UNITS * math.sqrt(unit) * along)

    moves = farthest(value.shape, map(move, range(1, RUNS // 2 + 1)))
    magnitude = largest_magnitude((params, args, value))
    # A number far smaller than the one it is added to leaves no trace, so that a radius is at
    # least sixteen roundings of the largest magnitude. Constants inside the function are not
    # seen.
    sizes = np.abs(value)
    # What underflows is less than sixteen roundings of the largest magnitude.
    usual = usual_radii(sizes, moves, found.dtype, 1, magnitude, subtracted=True)
    return value, np.maximum(RATIO * usual, RATIO**2 * unit * magnitude)
