"""Gradient ascent over inputs: rows or mixtures that make one position count most.

Maximises ln |J_i(z) v| over the input z, by Adam with projection to the domain, and over
the unit direction v, by power iteration: the gradient in v already is J^T J v. On a
convex domain the largest local norm is the Lipschitz constant, so nothing is lost by
differentiating instead of taking secants.

Discrete coordinate ascent: change other tokens so that one substitution counts more.

Every round takes the gradient of ln |y_q(x with x_i := s) - y_q(x)| in all rows, which
says to first order what each other token would gain; the most promising changes, one
alone or many at once, are then tried, and the best is kept if it truly gains.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from bounds.influence.sizes import scaled_norm
from bounds.lemma5.lipschitz.domain import Domain
from bounds.lemma5.lipschitz.jacobian import output_at
from jax_models import Transformer
from jax_models.model.pytree import register
from jax_models.model.transformer import embedded

SINGLES = 4  # changes tried alone, besides the largest 1, 4, 16, ... together


@functools.partial(jax.jit, static_argnames=("query", "target", "rounds"))
def ascend_tokens(
    model: Transformer,
    tokens: Array,
    position: Array,
    symbol: Array,
    free: Array,
    symbols: Array,
    *,
    query: int,
    target: str,
    rounds: int,
) -> tuple[Array, Array, Array]:
    """Returns tokens on which a substitution changes the output more.

    Args:
        model: A softmax transformer.
        tokens: The first input [n].
        position: Position i of the substitution; its token is kept.
        symbol: The substitute s.
        free: Positions whose token may change [n]; i is left out by itself.
        symbols: Symbols that may stand there [S].
        query: Position of the output.
        target: "activation" or "logits".
        rounds: Rounds at most; the first that gains nothing is the last.

    Returns:
        Tokens [n], |y_q(x with x_i := s) - y_q(x)| there [], and the rounds made.
    """
    length = tokens.shape[0]
    old, new = model.embedding[tokens[position]], model.embedding[symbol]
    movable = free.at[position].set(False)

    def change(rows: Array) -> Array:
        moved = rows.at[position].add(new - old)
        both = jax.vmap(lambda z: output_at(model, z, query, target))
        before, after = both(jnp.stack([rows, moved]))
        squares = ((after - before) ** 2).sum()
        some = squares > 0
        return jnp.where(some, jnp.sqrt(jnp.where(some, squares, 1)), 0.0)

    def propose(x: Array) -> Array:
        """Candidate inputs [c, n]: x itself, and the changes of largest first-order gain."""
        slope = jnp.nan_to_num(jax.grad(change)(embedded(model, x)))
        highest = jax.lax.Precision.HIGHEST
        gains = jnp.matmul(slope, model.embedding[symbols].T, precision=highest)
        gains = gains - (slope * model.embedding[x]).sum(axis=1, keepdims=True)
        to, gain = symbols[gains.argmax(axis=1)], gains.max(axis=1)
        gain = jnp.where(movable, gain, -jnp.inf)
        order = jnp.argsort(-gain)
        place = jnp.arange(length, dtype=gain.dtype)
        rank = jnp.zeros_like(gain).at[order].set(place)
        chosen = jnp.concatenate(
            [rank < size for size in _sizes(length)]
            + [rank == alone for alone in range(1, min(SINGLES, length))]
        ).reshape(-1, length)
        changed = jnp.where(chosen & (gain > 0), to, x)
        return jnp.concatenate([x[None], changed])

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, value, count, _ = state
        candidates = propose(x)
        values = jax.lax.map(lambda one: change(embedded(model, one)), candidates)
        at = values.argmax()
        gained = values[at] > value
        return candidates[at], values[at], count + 1, gained

    # Less than any change, so that the first round, which tries the input itself too,
    # always gains and sets the value.
    nothing = -jnp.ones((), model.embedding.dtype)
    first = (tokens, nothing, jnp.zeros((), jnp.int32), jnp.ones((), bool))
    x, value, count, _ = jax.lax.while_loop(
        lambda state: state[3] & (state[2] < rounds), step, first
    )
    return x, value, count


def _sizes(length: int) -> np.ndarray:
    """Returns how many changes are made together: 1, 4, 16, ... and all."""
    powers = 4 ** np.arange(int(np.ceil(np.log(max(length, 2)) / np.log(4))))
    return np.unique(np.append(powers, length)).astype(float)


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
