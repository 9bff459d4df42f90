"""The Jacobian of the query's output in the embeddings: norms of all its blocks.

y_q is the output at the query, the row that is read, y_i^(0) the embedding row at position
i, J_i the block of i. One reverse pass per output coordinate gives that row of the block d
y_q / d y_i^(0) of every position i at once, so that the blocks of all positions cost d
passes, not n. The norm of each block is then a power iteration, of all blocks together. Of
an output wider than `MAX_ROWS` only as many random orthonormal directions Q are taken, |Q
J_i| <= |J_i|, and the largest blocks are iterated anew with jvp and vjp of the model itself.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from bounds.influence.targets.change import read_target
from bounds.numbers.norms import contract, scaled_norm
from jax_models import Transformer
from jax_models.run.differentiable import forward_embeddings

Rows: TypeAlias = Float[Array, "tokens width"]
Moves: TypeAlias = Float[Array, "positions width"]
Vectors: TypeAlias = Float[Array, "maps _"]
Count: TypeAlias = Int[Array, ""]

# Relative growth of a norm in one iteration below which it counts as settled.
SETTLED = 1e-10
ITERATIONS = 200
MAX_ROWS = 64
MAX_ELEMENTS = 2**26  # of all blocks together, half a gigabyte in float64
CANDIDATES = 8
PASSES_AT_ONCE = 16


def power_iteration(
    product: Callable[[Array], Array],
    transpose: Callable[[Array], Array],
    start: Float[Array, "maps width"],
    iterations: int,
) -> tuple[Float[Array, "maps"], Float[Array, "maps width"], Count]:
    """Lower estimates of the norms of linear maps A_b, by v <- A^T A v / |.|."""

    # Every value is |A_b v_b| of a unit vector v_b, hence at most the operator norm up
    # to rounding, and grows with the iterations, which stop when none grows any more.
    # `product` maps the vectors to images, `transpose` images back. The vectors and the
    # number of iterations are returned, too.
    def normalise(vectors: Vectors, otherwise: Vectors) -> Vectors:
        norm = scaled_norm(vectors)[:, None]
        return jnp.where(norm > 0, vectors / jnp.where(norm > 0, norm, 1), otherwise)

    def step(
        state: tuple[Shaped[Array, "..."], ...],
    ) -> tuple[Shaped[Array, "..."], ...]:
        count, vectors, norms, _ = state
        image = product(vectors)
        new = scaled_norm(image)
        # The image as a unit vector, so that its square cannot leave the float range.
        moved = normalise(transpose(normalise(image, image)), vectors)
        return count + 1, moved, new, (new > norms * (1 + SETTLED)).any()

    unsettled = lambda state: state[3] & (state[0] < iterations)
    unit = normalise(start, jnp.ones_like(start) / start.shape[-1] ** 0.5)
    # Below every norm, so that the first step counts as growth and the loop goes on.
    below = -jnp.ones(start.shape[:-1], start.dtype)
    first = (jnp.zeros((), jnp.int32), unit, below, jnp.ones((), bool))
    count, vectors, _, _ = jax.lax.while_loop(unsettled, step, first)
    return scaled_norm(product(vectors)), vectors, count


def output_at(
    model: Transformer, rows: Rows, query: int, target: str
) -> Float[Array, "outputs"]:
    """Target (activation or logits) at the query, a function of all embedding rows y^(0)."""
    (y,) = forward_embeddings(model, rows, jnp.asarray([query], jnp.int32))
    return read_target(model, y, target)


def _output_directions(
    width: int, elements: int, seed: int
) -> Float[np.ndarray, "directions outputs"]:
    """Orthonormal output directions: all, or a random subspace of a wide output."""
    count = min(width, MAX_ROWS, max(CANDIDATES, MAX_ELEMENTS // elements))
    if count == width:
        return np.eye(width)
    gaussian = np.random.default_rng(seed).standard_normal((width, count))
    return np.linalg.qr(gaussian)[0].T


@functools.partial(jax.jit, static_argnames=("query", "target"))
def _sketched_norms(
    model: Transformer,
    rows: Rows,
    directions: Float[Array, "directions outputs"],
    start: Rows,
    *,
    query: int,
    target: str,
) -> tuple[Float[Array, "tokens"], Rows, Count]:
    """Lower estimates of |Q J_i|, Q `directions`; vectors that attain them; iterations."""
    _, pull = jax.vjp(lambda z: output_at(model, z, query, target), rows)
    blocks = jax.lax.map(
        lambda direction: pull(direction)[0], directions, batch_size=PASSES_AT_ONCE
    )  # [k, n, d]
    return power_iteration(
        lambda v: contract("knd,nd->nk", blocks, v),
        lambda u: contract("knd,nk->nd", blocks, u),
        start,
        ITERATIONS,
    )


@functools.partial(jax.jit, static_argnames=("query", "target"))
def norms_at(
    model: Transformer,
    rows: Rows,
    positions: Int[Array, "positions"],
    start: Moves,
    *,
    query: int,
    target: str,
) -> tuple[Float[Array, "positions"], Moves, Count]:
    """Lower estimates of |J_i| at `positions`; vectors that attain them; iterations."""
    function = lambda z: output_at(model, z, query, target)
    _, pull = jax.vjp(function, rows)

    def product(vectors: Moves) -> Float[Array, "positions outputs"]:
        def one(at: Count, vector: Float[Array, "width"]) -> Float[Array, "outputs"]:
            tangent = jnp.zeros_like(rows).at[at].set(vector)
            return jax.jvp(function, (rows,), (tangent,))[1]

        return jax.vmap(one)(positions, vectors)

    def transpose(images: Float[Array, "positions outputs"]) -> Moves:
        return jax.vmap(lambda at, image: pull(image)[0][at])(positions, images)

    return power_iteration(product, transpose, start, ITERATIONS)


def block_norms(
    model: Transformer, rows: Rows, *, query: int, target: str, seed: int
) -> tuple[Float[np.ndarray, "tokens"], Float[np.ndarray, "tokens width"], int]:
    """Lower estimates of |d y_q / d y_i^(0)|_2 at `rows`, for every position i."""
    # With them the unit directions that attain them, and the number of iterations.
    how: Any = {"query": query, "target": target}
    width = model.width if target == "activation" else model.classes
    assert width is not None
    directions = _output_directions(width, rows.shape[0] * model.width, seed)
    start = np.random.default_rng(seed).standard_normal(rows.shape)
    found = _sketched_norms(
        model, rows, *(jnp.asarray(x, rows.dtype) for x in (directions, start)), **how
    )
    norms, vectors, count = (np.array(x) for x in found)
    if len(directions) == width:
        return norms, vectors, int(count)
    at = np.argsort(-norms, kind="stable")[:CANDIDATES]
    again = norms_at(model, rows, jnp.asarray(at), jnp.asarray(vectors[at]), **how)
    # From a vector that a part of the output gave, the whole output gives no less.
    norms[at], vectors[at] = np.asarray(again[0]), np.asarray(again[1])
    return norms, vectors, int(count) + int(again[2])
