"""The loss: cross-entropy of the next symbol, in nats per symbol.

The expectation over the next symbol is taken exactly, the one over sequences is the mean
of the batch.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.languages.source import Source
from jax_models.training.prediction import compute_logits
from jax_models.training.settings import Reading


def cross_entropy(
    network: Any,
    source: Source,
    tokens: Array,
    all_positions: bool,
    reading: Reading = "last",
) -> Array:
    """Returns the mean cross-entropy of the next symbol, in nats per symbol.

    Args:
        network: a transformer with a read-out, or another network that can be trained.
        source: what the sequences are from.
        tokens: sequences [b, n].
        all_positions: whether every prefix is predicted, or only the whole sequence.
        reading: where the prediction after the whole sequence is read.
    """
    return losses_of(network, source, tokens, all_positions, reading)[0].mean()


def losses_of(
    network: Any, source: Source, tokens: Array, all_positions: bool, reading: Reading
) -> tuple[Array, Array]:
    """Returns each sequence's cross-entropy, and the least possible one.

    Args:
        network: what predicts.
        source: what the sequences are from.
        tokens: sequences [b, n].
        all_positions: whether every prefix is predicted, or only the whole sequence.
        reading: where the prediction after the whole sequence is read.

    Returns:
        The cross-entropies of the network and of the source itself, means over the
        prefixes that are predicted [b], in nats per symbol.
    """
    wanted = source.next_symbol(tokens)
    if not all_positions:
        wanted = wanted[:, -1:]
    if reading == "query":
        end = jnp.full((tokens.shape[0], 1), source.end, tokens.dtype)
        tokens = jnp.concatenate([tokens, end], axis=1)
    queried = (
        None if all_positions else jnp.asarray([tokens.shape[1] - 1], dtype=jnp.int32)
    )
    logits = jax.vmap(lambda x: compute_logits(network, x, queried))(tokens)
    wanted = wanted.astype(logits.dtype)
    losses = -(wanted * jax.nn.log_softmax(logits)).sum(axis=-1)
    entropies = jax.scipy.special.entr(wanted).sum(axis=-1)
    return losses.mean(axis=-1), entropies.mean(axis=-1)
