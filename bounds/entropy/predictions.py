"""A model's predictions of the symbol after a prefix: losses, logits, their rounding.

The prediction is read at the last symbol of the prefix (reading "last") or at an end
token after it ("query"). A source is a law of random words. A stratum is a group of
sampled prefixes whose total probability is known exactly.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt

from bounds.influence.moved import moved_model
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.substitution import padded
from bounds.numbers.norms import euclidean_norms
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest, largest_magnitude, usual_radii
from jax_models import InputError, Transformer, forward
from jax_models.languages import Source
from jax_models.languages.base import check_sample
from jax_models.model.reweight import at_length
from jax_models.model.transformer import encode_positions, read_logits
from jax_models.run.evaluate import require_readout
from jax_models.run.perturbation import perturbation

ByInput: TypeAlias = Float[np.ndarray, "inputs"]
Strings: TypeAlias = Int[np.ndarray, "inputs tokens"]
Classes: TypeAlias = Float[Array, "inputs classes"]

# Numbers of one next-symbol table held at a time.
CHUNK = 2**23
# Scores of one head held at a time, over all inputs of a batch.
BATCH_ELEMENTS = 2**21
MAX_BATCH = 4096


@dataclasses.dataclass(frozen=True)
class Population:
    """Prefixes of one length with weights (probabilities or shares) that add to 1.

    Attributes:
        strings: The prefixes.
        weights: Weights; of a sample, equal within each stratum.
        is_complete: Whether these are all prefixes, with their exact probabilities.
        strata: Stratum of each prefix; one number for all of an unstratified sample.
    """

    strings: Strings
    weights: ByInput
    is_complete: bool
    strata: Int[np.ndarray, "inputs"]

    def mean(self, values: ByInput) -> float:
        """Returns the weighted mean of `values`, one for each prefix."""
        return float(np.dot(self.weights, values))

    def standard_error(self, values: ByInput) -> float:
        """Returns the standard error of the mean of `values`; 0 if no prefix is left out."""
        if self.is_complete:
            return 0.0
        variance = 0.0
        for stratum in np.unique(self.strata):
            rows = np.flatnonzero(self.strata == stratum)
            # One value says nothing of its stratum's spread; that of all stands for it.
            spread = np.var(values[rows] if rows.size > 1 else values, ddof=1)
            variance += self.weights[rows].sum() ** 2 * spread / rows.size
        return float(np.sqrt(variance))

    def stratified(
        self, strata: Int[np.ndarray, "inputs"], shares: Mapping[int, float]
    ) -> "Population":
        """Returns a sample weighted by the exact probabilities of its strata.

        A sample that misses a stratum, and a complete population, stay as they are.
        """
        # With exact shares the frequencies of the strata are no part of the error.
        some = {stratum for stratum, share in shares.items() if share > 0}
        if self.is_complete or set(np.unique(strata).tolist()) != some:
            return self
        weights = np.empty(strata.size)
        for stratum in some:
            rows = strata == stratum
            weights[rows] = shares[stratum] / rows.sum()
        return dataclasses.replace(self, weights=weights / weights.sum(), strata=strata)


def enumerate_prefixes(source: Source, length: int) -> Population:
    """Returns all prefixes of a length, weighted by their probabilities.

    Args:
        source: The source.
        length: n >= 1, small: there may be V^n of them.
    """
    strings = source.prefixes(length)
    # Conditioned on words of at least n symbols.
    weights = np.exp(log_probabilities(source, strings) - source.log_survival(length))
    strata = np.zeros(len(strings), int)
    return Population(strings, weights / weights.sum(), True, strata)


def sample_prefixes(source: Source, length: int, count: int, seed: int) -> Population:
    """Returns independent prefixes of a length.

    Args:
        source: The source.
        length: n >= 1.
        count: Number of prefixes, at least 2.
        seed: The same seed gives the same prefixes.

    Raises:
        InputError: There are fewer than 2, which have no standard error.
    """
    if count < 2:
        raise InputError(f"{count} sampled prefixes; a standard error needs at least 2")
    check_sample(length, count)
    # Samples of several lengths are independent though they share a seed.
    key = jax.random.fold_in(jax.random.key(seed), length)
    strings = np.asarray(source.sample(key, length, count))
    return Population(strings, np.full(count, 1 / count), False, np.zeros(count, int))


def log_probabilities(source: Source, strings: Strings) -> ByInput:
    """Returns ln P(a word begins with each string), in chunks."""
    size = max(1, CHUNK // (strings.shape[1] * source.num_classes))
    of_chunk = functools.partial(_log_probability, source)
    return _in_batches(of_chunk, size, strings).astype(np.float64)


def _in_batches(
    function: Callable[..., Any], most: int, *arrays: Shaped[np.ndarray, "inputs ..."]
) -> Any:
    """Results of `function` on batches of at most `most` rows of `arrays`, joined."""
    count, parts = len(arrays[0]), []
    size = min(count, most)
    for start in range(0, count, size):
        # The last batch is filled up, so that one program serves all.
        rows = (padded(x[start : start + size], size) for x in arrays)
        parts.append(jax.device_get(function(*map(jnp.asarray, rows))))
    return jax.tree.map(lambda *x: np.concatenate(x)[:count], *parts)


_log_probability = jax.jit(Source.log_probability, static_argnums=0)


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A model's predictions of the symbols after prefixes.

    Attributes:
        logits: Float64 logits.
        losses: Cross-entropies with the exact law of the next symbol, nats.
        radius: Rounding radius of a difference of two logits, estimated, nats.
    """

    logits: Float[np.ndarray, "inputs classes"]
    losses: ByInput
    radius: ByInput

    def __getitem__(self, rows: Int[np.ndarray, "_"]) -> "Predictions":
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
        InputError: The model lacks a read-out, classes, tokens or positions.
    """
    require_readout(model, "name a model that predicts symbols, as train writes it")
    classes = model.classes
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


def model_tokens(
    source: Source, strings: Strings, reading: str
) -> Int[np.ndarray, "inputs _"]:
    """Returns a model's inputs: prefixes, with the end token if `reading` is "query"."""
    if reading != "query":
        return strings
    ends = np.full((len(strings), 1), source.end, strings.dtype)
    return np.concatenate([strings, ends], axis=1)


def predict(
    model: Transformer, source: Source, strings: Strings, reading: str
) -> Predictions:
    """Evaluates a model on prefixes, in batches.

    The expectation over the next symbol is taken exactly.

    Args:
        model: A transformer with a read-out of the source's classes.
        source: The source.
        strings: The prefixes.
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
    batch = min(MAX_BATCH, max(1, BATCH_ELEMENTS // (heads * n * min(n, 1024))))

    # Run 0 evaluates the model; the others repeat it with numbers moved by some
    # roundings.
    def evaluate(run: int) -> tuple[Shaped[np.ndarray, "inputs ..."], ...]:
        moved = moved_model(model, run) if run else model
        of_batch = functools.partial(_predict, moved, source, jnp.uint32(run))
        return _in_batches(of_batch, batch, tokens, strings)

    logits, wanted, ambiguous = evaluate(0)
    if not np.isfinite(logits).all():
        raise InputError("the model's logits are not finite; rescale its weights")
    if ambiguous.any():
        raise InputError(
            f"on {int(ambiguous.sum())} of {count} inputs rounding decides a winner of "
            "hard attention; change the model's tie_resolution"
        )
    # In float64 whatever the model's type: a loss is not to be rounded once more.
    logits = logits.astype(np.float64)
    # -Σ_s P(s) (logit_s - ln Σ e^logit), with Σ_s P(s) = 1.
    losses = np.logaddexp.reduce(logits, axis=1) - (wanted * logits).sum(axis=1)
    # Between the logits that moved farthest apart.
    apart = (np.ptp(evaluate(run)[0] - logits, axis=1) for run in range(1, RUNS + 1))
    moves, size = farthest(losses.shape, apart), euclidean_norms(logits)
    given = size, moves, model.dtype, n, largest_magnitude(model)
    return Predictions(logits, losses, usual_radii(*given, subtracted=True))


@functools.partial(jax.jit, static_argnames="source")
def _predict(
    model: Transformer,
    source: Source,
    run: UInt[Array, ""],
    tokens: Int[Array, "inputs _"],
    prefixes: Int[Array, "inputs tokens"],
) -> tuple[Classes, Classes, Bool[Array, "inputs"]]:
    query = jnp.asarray([tokens.shape[1] - 1], jnp.int32)

    def one(row: Int[Array, "_"]) -> tuple[Float[Array, "classes"], Bool[Array, ""]]:
        with perturbation(run, model.is_hard):
            final, reports = forward(model, row, query)
            logits = read_logits(model, final)[0]
            return logits, merge_reports(model, list(reports)).ambiguous

    logits, ambiguous = jax.vmap(one)(tokens)
    return logits, source.next_symbol(prefixes)[:, -1], ambiguous
