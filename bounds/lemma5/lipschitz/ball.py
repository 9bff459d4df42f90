"""Gradient ascent over rows in the embedding ball, for one position's local norm.

The ball has radius max |embedding + position encoding|, on which the closed forms hold:
beyond it an estimate could exceed a bound without refuting it. On a convex domain the
largest local norm is the Lipschitz constant, so nothing is lost by differentiating instead
of taking secants.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from bounds.lemma5.lipschitz.jacobian import output_at
from bounds.numbers.euclidean import scaled_norm
from jax_models import Transformer
from jax_models.model.transformer import encode_positions


def ball_radius(model: Transformer, length: int) -> float:
    """Largest |embedding[s] + position[j]| over symbols s and positions j < n."""
    positions = np.asarray(encode_positions(model, length), np.float64)
    embedding = np.asarray(model.embedding, np.float64)
    return max(float(np.linalg.norm(positions + e, axis=1).max()) for e in embedding)


@functools.partial(jax.jit, static_argnames=("query", "target", "steps"))
def ascend(
    model: Transformer,
    rows: Float[Array, "tokens width"],
    direction: Float[Array, "width"],
    position: Int[Array, ""],
    free: Bool[Array, "tokens"],
    radius: Float[Array, ""],
    *,
    query: int,
    target: str,
    steps: int,
) -> tuple[Float[Array, ""], Float[Array, "tokens width"], Float[Array, "width"]]:
    """Largest |J_i(z) v| met by an ascent over z, of which `free` rows move, and v.

    Maximises ln |J_i(z) v| over the rows z, by Adam with projection to the ball, and over
    the unit direction v, by power iteration: the gradient in v already is J^T J v. Returns
    the z and v that attain it, too.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(1.0, steps))
    rate = 0.1 * radius / rows.shape[1] ** 0.5  # a tenth of a row at the radius
    to_ball = jax.vmap(optax.projections.projection_l2_ball, (0, None))

    def log_gain(
        rows: Float[Array, "tokens width"], direction: Float[Array, "width"]
    ) -> Float[Array, ""]:
        unit = direction / scaled_norm(direction)
        tangent = jnp.zeros_like(rows).at[position].set(unit)
        _, change = jax.jvp(
            lambda z: output_at(model, z, query, target), (rows,), (tangent,)
        )
        squares = (change * change).sum()
        some = squares > 0
        return jnp.where(some, 0.5 * jnp.log(jnp.where(some, squares, 1)), -jnp.inf)

    def step(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        rows, direction, moments, best = state
        gain, slopes = jax.value_and_grad(log_gain, argnums=(0, 1))(rows, direction)
        wins = gain > best[0]  # the first of equals and never a NaN
        best = tuple(
            jnp.where(wins, a, b)
            for a, b in zip((gain, rows, direction), best, strict=True)
        )
        # Where the output does not move at all there is no slope to follow.
        slope, turn = (jnp.nan_to_num(x, posinf=0.0, neginf=0.0) for x in slopes)
        # Optax counts its steps in int32 and raises floats to them.
        with jax.numpy_dtype_promotion("standard"):
            update: Any
            update, moments = optimiser.update(-slope, moments, rows)
        moved = to_ball(rows + rate * update, radius)
        rows = jnp.where(free[:, None], moved, rows)
        # J^T J v / |J v|^2, of which the gradient is the part orthogonal to v.
        direction = direction + turn
        return (rows, direction / scaled_norm(direction), moments, best), None

    unit = direction / scaled_norm(direction)
    nothing = jnp.full((), -jnp.inf, rows.dtype)
    first = (rows, unit, optimiser.init(rows), (nothing, rows, unit))
    # One more step, of which only the gain counts: that of the last point.
    (*_, best), _ = jax.lax.scan(step, first, None, length=steps + 1)
    gain, rows, direction = best
    return jnp.exp(gain), rows, direction
