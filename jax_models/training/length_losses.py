"""Losses by length: estimates on fresh sequences, with standard errors."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from jax_models.languages.source import Source
from jax_models.training.losses import losses_of
from jax_models.training.settings import Reading

# Symbols of the sequences whose losses are computed side by side.
SYMBOLS_AT_ONCE = 2**14


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
