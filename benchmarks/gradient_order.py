"""Does a gradient find the substitution that changes most, and does a bound say anything?

The gradient is of an entry of the watched row, at the embeddings, for 64 of its entries: of
all substitutions, how often is the gradient's first choice, or one of its first ten or
hundred, the one that changes the entry most; what its first choice changes, as a share of
the largest; and the rank correlation of what it estimates with what is found (medians).

The bound is what the last norm lets any two rows differ by, over the largest change found.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import bounds
import jax_models as jm
from benchmarks.trained import Encoder, draw_question
from jax_models.model.transformer import apply_layer, encode_positions, symbol_rows

TARGETS = 64  # entries of the watched row


def norm_cap(model: jm.Transformer) -> float:
    """Returns what two rows behind the last layer norm may differ by at most.

    Of g * u + b, g its scale, where u has a norm of sqrt(d) at most: 2 sqrt(d) max |g|.

    Args:
        model: whose output leaves a layer norm.
    """
    norm: Any = model.final_norm or model.layers[-1].norm2
    return 2 * model.width**0.5 * float(jnp.abs(norm.scale).max())


def order_by_gradient(
    model: jm.Transformer, encoder: Encoder, seed: int
) -> dict[str, Any]:
    """Returns how gradients order substitutions: their first choices, their correlation.

    Args:
        model: in float32.
        encoder: what is asked of it.
        seed: of the draws.
    """
    tokens, positions, symbols = draw_question(
        encoder, encoder.positions, encoder.substitutes, seed
    )
    found = bounds.scan(
        model,
        tokens,
        positions=positions.tolist(),
        symbols=symbols,
        rows=encoder.row,
        reduce="none",
    )
    at = jnp.asarray([encoder.row], jnp.int32)
    held = jnp.asarray(tokens)

    def final(moved: jax.Array) -> jax.Array:
        y = symbol_rows(model, held, encode_positions(model, encoder.length) + moved)
        for depth, layer in enumerate(model.layers):
            last = depth == len(model.layers) - 1
            y = apply_layer(layer, y, at if last else None)[0]
        return (y if model.final_norm is None else model.final_norm(y))[0]

    start = jnp.zeros((encoder.length, model.embedding_width), model.dtype)
    targets = np.linspace(0, model.width - 1, TARGETS).astype(int)

    @jax.jit
    def slopes(at: jax.Array) -> jax.Array:
        _, pull = jax.vjp(final, start)
        return jax.lax.map(
            lambda k: pull(jax.nn.one_hot(k, model.width, dtype=model.dtype))[0], at
        )

    embedding = np.asarray(model.embedding)
    moved = embedding[symbols] - embedding[tokens[positions]][:, None]
    slope = np.asarray(slopes(jnp.asarray(targets)))[:, positions]
    estimated = np.abs(np.einsum("tpd,pkd->tpk", slope, moved)).reshape(TARGETS, -1)
    exact = np.abs(found.values[:, : moved.shape[1]]).reshape(-1, model.width)
    exact = exact[:, targets].T
    order = np.argsort(-estimated, axis=1)
    places = (order == exact.argmax(axis=1)[:, None]).argmax(axis=1)
    first = np.take_along_axis(exact, order[:, :1], 1)[:, 0] / exact.max(axis=1)
    pairs = zip(estimated, exact, strict=True)
    ranks = [spearmanr(one, other)[0] for one, other in pairs]
    norms = np.linalg.norm(found.values[:, : moved.shape[1]], axis=-1)
    return {
        "ordered": exact.shape[1],
        "norm_cap": norm_cap(model) / norms.max(),
        **{f"within_{k}": float((places < k).mean()) for k in (1, 10, 100)},
        "first_choice": float(np.median(first)),
        "rank_correlation": float(np.median(ranks)),
    }
