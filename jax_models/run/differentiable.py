"""The differentiable forward pass, from embedded rows instead of tokens.

`forward` starts from tokens and keeps the key of the largest softmax weight apart from the
others; `forward_embeddings` starts from embedded rows, which may be any real vectors, and
each row attends by plain weights over all keys. The entry is the model's map from rows of
embedding plus position to the first layer's input, if it has one.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from jax_models.model.attending import (
    RowBlock,
    compute_scores,
    project_queries,
    store_keys,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.rows import linear
from jax_models.model.transformer import (
    Transformer,
    attention_input,
    combine_heads,
    join_heads,
    run_layers,
    scores_per_row,
)
from jax_models.run.blocks import map_rows, row_block
from jax_models.weighting.base import contract


def forward_embeddings(
    model: Transformer,
    rows: Float[Array, "tokens d_embedding"],
    queried: Int[Array, "rows"] | None = None,
) -> Float[Array, "_ width"]:
    """Returns the final activations from embedded rows; pure and differentiable.

    Equal to `forward` where the rows are those of `embedded` for tokens without padding,
    up to rounding. Memory is O(n d) beside one block of scores, under jvp and vjp too.

    Args:
        model: the transformer; a hard weighting's derivative is that of its winners.
        rows: embeddings with positions added, in front of the entry.
        queried: positions whose final activation is wanted; all by default. The
            last layer then computes only those.

    Returns:
        Activations of all rows, or of those queried.
    """
    rows = rows if model.entry is None else model.entry(rows)
    return run_layers(model, rows, _apply_layer, queried)[0]


def embed_mixture(
    mixture: Float[Array, "tokens symbols"],
    embedding: Float[Array, "symbols width"],
    positions: Float[Array, "tokens width"],
) -> Float[Array, "tokens width"]:
    """Returns the embedded rows of relaxed tokens: mixtures of the symbols' embeddings.

    Args:
        mixture: a distribution over the symbols at each position.
        embedding: of the symbols.
        positions: the position encoding.

    Returns:
        Rows; a one-hot mixture gives the row of its token.
    """
    return linear(mixture, embedding.T) + positions


def _apply_layer(
    layer: Layer,
    rows: Float[Array, "tokens width"],
    queried: Int[Array, "rows"] | None,
) -> tuple[Float[Array, "_ width"], None]:
    """The layer's output rows at `queried`, at all positions if None; no tie report."""
    length = rows.shape[0]
    inputs = attention_input(layer, rows)
    store = store_keys(layer.attention, inputs)
    keys = jnp.arange(length, dtype=jnp.int32)
    positions = keys if queried is None else queried

    # Recomputed in the backward pass: a scan would store the scores of every block.
    @jax.checkpoint
    def run(block: RowBlock) -> Float[Array, "rows width"]:
        at, y, u = block
        attention = layer.attention
        queries = project_queries(attention, u, length, at)
        scores = compute_scores(attention, queries, store.keys, length, at, keys)
        # Not a summary with its largest weight apart: among equal ones the choice of one is
        # not differentiable, softmax is.
        weights = attention.weighting.weights(
            scores, visible(attention.sight, at, keys)[None]
        )
        return combine_heads(layer, y, join_heads(contract(weights, store.values)))

    # No tiles of keys: a row has its scores of all keys at once.
    per_row = scores_per_row(layer.attention, length)
    if queried is not None:
        rows, inputs = rows[queried], inputs[queried]
    block = row_block(positions.shape[0], per_row)
    return map_rows(run, (positions, rows, inputs), block), None
