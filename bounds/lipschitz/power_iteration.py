"""Power iteration: the operator norm of many linear maps at once, from below."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.sizes import scaled_norm

# Relative growth of a norm in one iteration below which it counts as settled.
SETTLED = 1e-10


def power_iteration(
    product: Callable[[Array], Array],
    transpose: Callable[[Array], Array],
    start: Array,
    iterations: int,
) -> tuple[Array, Array, Array]:
    """Returns lower estimates of the norms of linear maps A_b, by v <- A^T A v / |.|.

    Every value is |A_b v_b| of a unit vector v_b, hence at most the operator norm up to
    rounding, and grows with the iterations. Stops early when none grows any more.

    Args:
        product: From vectors [b, d] to A_b v_b [b, m].
        transpose: From vectors [b, m] to A_b^T u_b [b, d].
        start: First vectors [b, d], not zero.
        iterations: Iterations at most.

    Returns:
        The norms [b], the unit vectors [b, d] that attain them, and the number of
        iterations made.
    """

    def normalise(vectors: Array, otherwise: Array) -> Array:
        norm = scaled_norm(vectors)[:, None]
        return jnp.where(norm > 0, vectors / jnp.where(norm > 0, norm, 1), otherwise)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, vectors, norms, _ = state
        image = product(vectors)
        new = scaled_norm(image)
        # The image as a unit vector, so that its square cannot leave the float range.
        moved = normalise(transpose(normalise(image, image)), vectors)
        return count + 1, moved, new, (new > norms * (1 + SETTLED)).any()

    def unsettled(state: tuple[Array, ...]) -> Array:
        count, _, _, growing = state
        return growing & (count < iterations)

    unit = normalise(start, jnp.ones_like(start) / start.shape[-1] ** 0.5)
    # Below every norm, so that the first step counts as growth and the loop goes on.
    below = -jnp.ones(start.shape[:-1], start.dtype)
    first = (jnp.zeros((), jnp.int32), unit, below, jnp.ones((), bool))
    count, vectors, _, _ = jax.lax.while_loop(unsettled, step, first)
    return scaled_norm(product(vectors)), vectors, count
