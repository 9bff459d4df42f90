"""The loss: cross-entropy of the next symbol, in nats per symbol, of a batch or by length.

The expectation over the next symbol is taken exactly, the one over sequences is the mean
of the batch.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_models.languages.source import Source
from jax_models.training.prediction import compute_logits
from jax_models.training.settings import Reading

# Symbols of the sequences whose losses are computed side by side.
SYMBOLS_AT_ONCE = 2**14


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


@dataclasses.dataclass(frozen=True)
class LengthLosses:
    """Cross-entropies of the symbol after n, for several n: estimates from samples.

    Attributes:
        lengths: n [m].
        mean: means over the sampled sequences [m], nats per symbol.
        standard_error: of the means [m].
    """

    lengths: tuple[int, ...]
    mean: np.ndarray
    standard_error: np.ndarray


@functools.partial(jax.jit, static_argnames=("source", "length", "count", "reading"))
def _sampled(
    network: Any,
    key: Array,
    *,
    source: Source,
    length: int,
    count: int,
    reading: Reading,
) -> Array:
    tokens = source.sample(key, length, count)
    return jax.lax.map(
        lambda x: losses_of(network, source, x[None], False, reading)[0][0],
        tokens,
        batch_size=max(1, min(count, SYMBOLS_AT_ONCE // length)),
    )


def measure_losses(
    network: Any,
    source: Source,
    lengths: Sequence[int],
    key: Array,
    *,
    count: int = 256,
    reading: Reading = "last",
) -> LengthLosses:
    """Estimates the cross-entropy of the symbol after a whole sequence, by length.

    Args:
        network: what predicts.
        source: what the sequences are from; hashable.
        lengths: n, each at least 1.
        key: a JAX random key; the sequences of a length depend on it and n alone.
        count: sequences per length, at least 2.
        reading: where the prediction is read.

    Returns:
        Means and their standard errors.
    """
    samples = [
        np.asarray(
            _sampled(
                network,
                jax.random.fold_in(key, n),
                source=source,
                length=n,
                count=count,
                reading=reading,
            ),
            np.float64,
        )
        for n in lengths
    ]
    return LengthLosses(
        tuple(lengths),
        np.array([one.mean() for one in samples]),
        np.array([one.std(ddof=1) / count**0.5 for one in samples]),
    )
