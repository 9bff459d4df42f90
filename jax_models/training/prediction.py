"""Logits of the next symbol by networks that can be trained, and their loss.

`compute_logits` and `check_network` dispatch on the class of the network: a further kind of
network registers a rule of each. A source draws sequences and knows the distribution of
each next symbol, whose classes are the symbols and END.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.constructions.rnn import ElmanNetwork, hidden_states
from jax_models.errors import InputError
from jax_models.format.model_check import check_model
from jax_models.jax_arguments import check_float_type
from jax_models.languages.base import Source
from jax_models.model.initialise import Architecture, init_transformer
from jax_models.model.mask import SIGHTS
from jax_models.model.transformer import Transformer, embedded, read_logits
from jax_models.run.differentiable import forward_embeddings
from jax_models.run.evaluate import require_readout
from jax_models.training.settings import Reading, Training

# Types of `compute_logits`: one sequence, positions of the logits, and these.
Tokens = Int[Array, "tokens"]
Queried = Int[Array, "rows"] | None
Logits = Float[Array, "_ classes"]


def init_predictor(
    key: PRNGKeyArray, source: Source, reading: Reading, max_length: int, **shape: Any
) -> Transformer:
    """Returns a transformer with the symbols and classes of a source, for training."""
    end = ("$",) if reading == "query" else ()
    symbols = (*source.symbols, *end)
    architecture = Architecture(
        num_classes=source.num_classes, max_length=max_length + len(end)
    )
    model = init_transformer(
        key, **shape, vocab_size=len(symbols), architecture=architecture
    )
    letters = tuple(range(len(source.symbols)))
    return dataclasses.replace(model, vocabulary=symbols, substitutable=letters)


@functools.singledispatch
def compute_logits(network: Any, tokens: Tokens, queried: Queried = None) -> Logits:
    """Returns the logits of the next symbol at the queried positions; differentiable.

    Without `queried` all positions are taken.
    """
    raise _unknown(network)


@functools.singledispatch
def check_network(network: Any, training: Training) -> Any:
    """Returns the network; an `InputError` unless it can be trained with the settings."""
    raise _unknown(network)


def check_classes(network: Any, source: Source, training: Training) -> None:
    """Raises `InputError` unless a network has the symbols and classes of a source."""
    classes = source.num_classes
    # Shapes alone: nothing is computed.
    found = jax.eval_shape(compute_logits, network, jnp.zeros(1, jnp.int32)).shape[-1]
    if found != classes:
        raise InputError(
            f"the read-out has {found} classes; the source needs {classes}: its "
            "symbols in the order of their ids, and END"
        )
    symbols = classes if training.reading == "query" else classes - 1
    if network.vocab_size < symbols:
        end = ", an end token included" if training.reading == "query" else ""
        raise InputError(
            f"the model has {network.vocab_size} symbols; the source needs {symbols}{end}"
        )


def _unknown(network: Any) -> InputError:
    kinds = [kind.__name__ for kind in compute_logits.registry if kind is not object]
    return InputError(
        f"{type(network).__name__} is no network that can be trained; expected one of "
        f"{', '.join(kinds)}"
    )


@compute_logits.register
def _(network: Transformer, tokens: Tokens, queried: Queried = None) -> Logits:
    require_readout(network)
    rows = forward_embeddings(network, embedded(network, tokens), queried)
    return read_logits(network, rows)


@check_network.register
def _(network: Transformer, training: Training) -> Transformer:
    network = check_model(network)
    require_readout(network, "make one with num_classes")
    if network.is_hard:
        raise InputError(
            "a hard weighting's winner has no gradient; train with softmax and "
            "re-weight the model after"
        )
    masks = {layer.attention.mask for layer in network.layers}
    if training.all_positions and any(SIGHTS[mask].after for mask in masks):
        raise InputError(
            f"masks {sorted(masks)} let a row see what it is to predict; use the mask "
            '"future", or all_positions=False'
        )
    return network


@compute_logits.register
def _(network: ElmanNetwork, tokens: Tokens, queried: Queried = None) -> Logits:
    states = hidden_states(network, tokens)
    return network.readout(states if queried is None else states[queried])


@check_network.register
def _(network: ElmanNetwork, training: Training) -> ElmanNetwork:
    del training  # each state has seen its prefix only: any reading will do
    check_float_type(network.dtype, "the network")
    return network


def cross_entropy(
    network: Any,
    source: Source,
    tokens: Int[Array, "inputs tokens"],
    all_positions: bool,
    reading: Reading = "last",
) -> Float[Array, ""]:
    """Returns the mean cross-entropy of the next symbol, in nats per symbol.

    Args:
        network: a transformer with a read-out, or another network that can be trained.
        source: the source of the sequences.
        tokens: sequences.
        all_positions: whether every prefix is predicted, or only the whole sequence.
        reading: where the prediction after the whole sequence is read.
    """
    return losses_of(network, source, tokens, all_positions, reading)[0].mean()


def losses_of(
    network: Any,
    source: Source,
    tokens: Int[Array, "inputs tokens"],
    # whether every prefix is predicted, or only the whole sequence
    all_positions: bool,
    # place of the prediction after the whole sequence
    reading: Reading,
) -> tuple[Float[Array, "inputs"], Float[Array, "inputs"]]:
    """Returns each sequence's mean cross-entropy, and the least possible one, the entropy.

    Means are over the predicted prefixes, in nats per symbol.
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
    # The expectation over the next symbol is exact, from the source's distribution and not
    # from a drawn symbol; only the sequences are a sample.
    losses = -(wanted * jax.nn.log_softmax(logits)).sum(axis=-1)
    entropies = jax.scipy.special.entr(wanted).sum(axis=-1)
    # Over the predicted prefixes, in nats per symbol.
    return losses.mean(axis=-1), entropies.mean(axis=-1)
