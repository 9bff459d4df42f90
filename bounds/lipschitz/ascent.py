"""Gradient ascent over inputs: rows or mixtures that make one position count most.

Maximises ln |J_i(z) v| over the input z, by Adam with projection to the domain, and over
the unit direction v, by power iteration: the gradient in v already is J^T J v. On a
convex domain the largest local norm is the Lipschitz constant, so nothing is lost by
differentiating instead of taking secants.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bounds.influence.sizes import scaled_norm
from bounds.lipschitz.domain import Domain
from bounds.lipschitz.jacobian import output_at
from jax_models import Transformer
from jax_models.pytree import register


@register
@dataclasses.dataclass(frozen=True)
class Point:
    """Where an ascent starts, or the best point it met."""

    variable: Array  # rows [n, d] or mixtures [n, S]; see the domain
    direction: Array  # [r] in the basis of the domain
    position: Array  # [] i
    fixed: Array  # [n, d] rows of the tokens, taken where nothing is free
    free: Array  # [n] bool: may the row move

    def rows(self, domain: Domain) -> Array:
        """Returns the rows y^(0) [n, d]."""
        return jnp.where(self.free[:, None], domain.rows(self.variable), self.fixed)


@functools.partial(jax.jit, static_argnames=("query", "target", "steps"))
def ascend(
    model: Transformer,
    domain: Domain,
    start: Point,
    *,
    query: int,
    target: str,
    steps: int,
) -> tuple[Array, Point]:
    """Returns the largest local norm met on the way, and where.

    Args:
        model: A softmax transformer.
        domain: What may vary.
        start: The first point; its position is kept.
        query: Position of the output.
        target: "activation" or "logits".
        steps: Steps of the ascent.

    Returns:
        |J_i(z) v| [], a lower estimate of the Lipschitz constant in the domain, and the
        point (z, v).
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(1.0, steps))

    def log_gain(variable: Array, direction: Array) -> Array:
        point = dataclasses.replace(start, variable=variable)
        unit = direction / scaled_norm(direction)
        moved = jnp.matmul(domain.basis, unit, precision=jax.lax.Precision.HIGHEST)
        rows = point.rows(domain)
        tangent = jnp.zeros_like(rows).at[start.position].set(moved)
        _, change = jax.jvp(
            lambda z: output_at(model, z, query, target), (rows,), (tangent,)
        )
        squares = (change * change).sum()
        some = squares > 0
        return jnp.where(some, 0.5 * jnp.log(jnp.where(some, squares, 1)), -jnp.inf)

    def step(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        variable, direction, moments, best = state
        gain, slopes = jax.value_and_grad(log_gain, argnums=(0, 1))(variable, direction)
        best = _better((gain, variable, direction), best)
        # Where the output does not move at all there is no slope to follow.
        slope, turn = (jnp.nan_to_num(x, posinf=0.0, neginf=0.0) for x in slopes)
        # Optax counts its steps in int32 and raises floats to them.
        with jax.numpy_dtype_promotion("standard"):
            update: Any
            update, moments = optimiser.update(
                -domain.tangent(slope), moments, variable
            )
        variable = domain.project(variable + domain.step * update)
        # J^T J v / |J v|^2, of which the gradient is the part orthogonal to v.
        direction = direction + turn
        return (variable, direction / scaled_norm(direction), moments, best), None

    nothing = jnp.full((), -jnp.inf, start.variable.dtype)
    variable, direction = start.variable, start.direction / scaled_norm(start.direction)
    first = (
        variable,
        direction,
        optimiser.init(variable),
        (nothing, variable, direction),
    )
    # One more step, of which only the gain counts: that of the last point.
    (*_, best), _ = jax.lax.scan(step, first, None, length=steps + 1)
    gain, variable, direction = best
    point = dataclasses.replace(start, variable=variable, direction=direction)
    return jnp.exp(gain), point


def _better(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
    """Returns the triple of larger gain, the first of equals and never a NaN."""
    wins = one[0] > other[0]
    return tuple(jnp.where(wins, a, b) for a, b in zip(one, other, strict=True))
