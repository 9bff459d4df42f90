"""Ascent over mixtures of tokens, on which one substitution counts more.

Every free position holds a distribution over the symbols, and its row is the mixture of
their rows. ln |y_q(z with row i of s) - y_q(z with row i of x_i)| is raised by Adam, with
projection to the simplex; hard attention has the slope of its winners.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bounds.influence.exhaustive import read_target
from jax_models import Transformer
from jax_models.differentiable import embed_mixture, forward_embeddings
from jax_models.transformer import embed, encode_positions

RATE = 0.1  # of the weights of a mixture
# The start leans towards the tokens: a uniform mixture has forgotten them.
LEAN = 0.5


@functools.partial(jax.jit, static_argnames=("query", "target", "steps"))
def ascend_mixture(
    model: Transformer,
    tokens: Array,
    symbols: Array,
    free: Array,
    position: Array,
    symbol: Array,
    *,
    query: int,
    target: str,
    steps: int,
) -> Array:
    """Returns the best mixtures that an ascent from some tokens met [n, S].

    Args:
        model: A transformer.
        tokens: The input [n].
        symbols: What is mixed [S].
        free: Which positions may change [n]; the others keep their tokens.
        position: Position i of the substitution; not free.
        symbol: The substitute s.
        query: Position of the output.
        target: "activation" or "logits".
        steps: Steps of the ascent.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps))
    fixed = embed(model, tokens)
    encodings = encode_positions(model, tokens.shape[0])
    move = model.embedding[symbol] - model.embedding[tokens[position]]
    at = jnp.asarray([query], jnp.int32)

    def run(rows: Array) -> Array:
        (output,) = forward_embeddings(model, rows, at)
        return read_target(model, output, target)

    def gain(mixture: Array) -> Array:
        mixed = embed_mixture(mixture, model.embedding[symbols], encodings)
        rows = jnp.where(free[:, None], mixed, fixed)
        change = run(rows.at[position].add(move)) - run(rows)
        squares = (change * change).sum()
        some = squares > 0
        return jnp.where(some, 0.5 * jnp.log(jnp.where(some, squares, 1)), -jnp.inf)

    def step(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        mixture, moments, best = state
        value, slope = jax.value_and_grad(gain)(mixture)
        better = value > best[0]
        best = jax.tree.map(
            lambda new, old: jnp.where(better, new, old), (value, mixture), best
        )
        slope = jnp.nan_to_num(slope, posinf=0.0, neginf=0.0)
        # A step that all weights share is undone by the projection.
        slope = slope - slope.mean(axis=1, keepdims=True)
        # Optax counts its steps in int32 and divides floats by integers.
        with jax.numpy_dtype_promotion("standard"):
            update: Any
            update, moments = optimiser.update(-slope, moments, mixture)
            mixture = jax.vmap(optax.projections.projection_simplex)(mixture + update)
        return (mixture, moments, best), None

    one_hot = (tokens[:, None] == symbols).astype(model.dtype)
    start = LEAN * one_hot + (1 - LEAN) / symbols.shape[0]
    first = (start, optimiser.init(start), (jnp.full((), -jnp.inf, start.dtype), start))
    (*_, best), _ = jax.lax.scan(step, first, None, length=steps + 1)
    return best[1]
