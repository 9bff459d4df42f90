"""Discrete coordinate ascent: change other tokens so that one substitution counts more.

Every round takes the gradient of ln |y_q(x with x_i := s) - y_q(x)| in all rows, which
says to first order what each other token would gain; the most promising changes, one
alone or many at once, are then tried, and the best is kept if it truly gains.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.lipschitz.jacobian import output_at
from jax_models import Transformer
from jax_models.transformer import embed

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
        slope = jnp.nan_to_num(jax.grad(change)(embed(model, x)))
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
        values = jax.lax.map(lambda one: change(embed(model, one)), candidates)
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
