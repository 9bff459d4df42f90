"""Rounding radius of the result of a function of some parameters.

The rounding inside a function is unknown, and its sums with large numbers may round
alike as long as parameters move by a few roundings. So parameters move by θ = sqrt(u),
up and down: with f+ and f- the results then,

    m = max(|f+ + f- - 2 f|, 16 u |f+ - f-| / (2 θ)),

the rounding of three evaluations and a curvature times θ^2 = u, and the effect of
sixteen roundings of the parameters on the result. A number that is far smaller than a
number it is added to leaves no trace: a radius is at least 16 u times the largest
magnitude of parameters, arguments and result. Large constants inside the function are
not seen.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.rounding.moved_inputs import RUNS, float_leaves, move_alike, unit_of
from bounds.rounding.radii import RATIO, Usual, farthest, largest_magnitude
from jax_models import InputError
from jax_models.run.perturbation import UNITS


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
    found = _called(function, params, args)
    value = found.astype(np.float64)

    # Parameters of a wider type than the result's may be rounded inside.
    unit = max(unit_of(params), float(jnp.finfo(found.dtype).eps) / 2)

    def again(run: int, sign: int) -> Float[np.ndarray, "*result"]:
        other = move_alike(params, run, lambda own: sign * math.sqrt(max(own, unit)))
        return _called(function, other, args).astype(np.float64)

    def move(run: int) -> Float[np.ndarray, "*result"]:
        up, down = again(run, 1) - value, again(run, -1) - value
        with np.errstate(invalid="ignore"):
            bent, along = np.abs(up + down), np.abs(up - down) / 2
            return np.maximum(bent, UNITS * math.sqrt(unit) * along)

    moves = farthest(value.shape, map(move, range(1, RUNS // 2 + 1)))
    magnitude = largest_magnitude((params, args, value))
    sizes = np.abs(value)
    # What underflows is less than sixteen roundings of the largest magnitude.
    usual = Usual.of(sizes, moves, found.dtype, 1, magnitude, subtracted=True)
    radii = np.maximum(RATIO * usual.radii(sizes, moves), RATIO**2 * unit * magnitude)
    return value, radii


def _called(
    function: Callable[..., Any], params: Any, args: tuple[Any, ...]
) -> Float[np.ndarray, "*result"]:
    found = np.asarray(function(params, *args))
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise InputError(
            f"the function returned an array of {found.dtype}; expected floats"
        )
    return found
