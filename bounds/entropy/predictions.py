"""A model's predictions of what follows prefixes: losses, logits and their rounding."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.exhaustive import query_output
from bounds.influence.substitution import padded
from bounds.rounding import rounding_steps, subtraction_radius
from jax_models import InputError, Transformer
from jax_models.evaluate import require_readout
from jax_models.languages import Source
from jax_models.reweight import at_length
from jax_models.transformer import encode_positions

# Scores of one head held at a time, over all inputs of a batch.
BATCH_ELEMENTS = 2**21
MAX_BATCH = 4096


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a model says after prefixes [m, n].

    Attributes:
        logits: [m, C], float64.
        losses: Cross-entropies with what follows, nats [m].
        radius: How far rounding may have moved a difference of two logits, nats [m].
    """

    logits: np.ndarray
    losses: np.ndarray
    radius: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> "Predictions":
        """Returns the predictions on some of the prefixes."""
        return Predictions(self.logits[rows], self.losses[rows], self.radius[rows])


def check_predictor(
    model: Transformer, source: Source, length: int, reading: str
) -> None:
    """Raises `InputError` unless a model can predict prefixes of a source.

    Args:
        model: A transformer.
        source: The source.
        length: n, the longest.
        reading: "last", or "query", which needs the end token in the vocabulary.

    Raises:
        InputError: It lacks a read-out, its classes, tokens or positions.
    """
    readout = require_readout(model)
    classes = readout.weight.shape[0]
    if classes != source.num_classes:
        raise InputError(
            f"the read-out has {classes} classes; {source.name} needs "
            f"{source.num_classes}: {' '.join((*source.symbols, 'END'))}"
        )
    needed = len(source.symbols) + (reading == "query")
    if model.vocab_size < needed:
        wants = "its symbols and the end token" if reading == "query" else "its symbols"
        raise InputError(
            f"the model's vocabulary has {model.vocab_size} tokens; {source.name} needs "
            f"{needed}, {wants}"
        )
    encode_positions(model, length + (reading == "query"))


def model_tokens(source: Source, strings: np.ndarray, reading: str) -> np.ndarray:
    """Returns the inputs of a model: prefixes, with the end token after them under R2.

    Args:
        source: The source.
        strings: Prefixes [m, n].
        reading: "last" or "query".
    """
    if reading != "query":
        return strings
    ends = np.full((len(strings), 1), source.end, strings.dtype)
    return np.concatenate([strings, ends], axis=1)


def predict(
    model: Transformer, source: Source, strings: np.ndarray, reading: str
) -> Predictions:
    """Evaluates a model on prefixes, in batches.

    The expectation over the next symbol is taken exactly.

    Args:
        model: A transformer with a read-out of the source's classes.
        source: The source.
        strings: Prefixes [m, n].
        reading: "last" or "query".

    Returns:
        Logits, losses, and the radius of differences of two logits.

    Raises:
        InputError: The model does not fit, is not finite, or meets a tie of hard
            attention that rounding decides.
    """
    check_predictor(model, source, strings.shape[1], reading)
    tokens = model_tokens(source, strings, reading)
    count, n = tokens.shape
    model = at_length(model, n)
    heads = max((x.attention.num_heads for x in model.layers), default=1)
    batch = min(MAX_BATCH, max(1, BATCH_ELEMENTS // (heads * n * min(n, 1024))), count)
    found = []
    for start in range(0, count, batch):
        part = slice(start, start + batch)
        rows, prefixes = (padded(x[part], batch) for x in (tokens, strings))
        answer = _predict(model, source, jnp.asarray(rows), jnp.asarray(prefixes))
        size = len(tokens[part])
        found.append([np.asarray(x)[:size] for x in answer])
    logits, wanted, sizes, score_steps, ambiguous = (
        np.concatenate(parts) for parts in zip(*found, strict=True)
    )
    if not np.isfinite(logits).all():
        raise InputError("the model's logits are not finite; rescale its weights")
    if ambiguous.any():
        raise InputError(
            f"on {int(ambiguous.sum())} of {count} inputs rounding decides a winner of "
            "hard attention; change the model's tie_resolution"
        )
    steps = rounding_steps(model, n, score_steps)
    radius = subtraction_radius(model.dtype, steps, sizes)
    # In float64 whatever the model's type: a loss is not to be rounded once more.
    logits = logits.astype(np.float64)
    losses = np.logaddexp.reduce(logits, axis=1) - (wanted * logits).sum(axis=1)
    return Predictions(logits, losses, radius.astype(np.float64))


@functools.partial(jax.jit, static_argnames="source")
def _predict(model: Transformer, source: Source, tokens: Any, prefixes: Any) -> Any:
    query = tokens.shape[1] - 1
    logits, sizes, score_steps, ties = jax.vmap(
        lambda x: query_output(model, x, query=query, target="logits")
    )(tokens)
    wanted = source.next_symbol(prefixes)[:, -1]
    return logits, wanted, sizes, score_steps, ties.ambiguous
