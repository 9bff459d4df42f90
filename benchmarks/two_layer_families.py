"""Two-layer softmax ReLU models on which influences lose digits.

The families of `benchmarks.two_layer_errors`: one change each of a random model and of its
input. Tensors have one shape (two heads, d = 6, 8 neurons), so that families share programs.
A family with symbol 0 apart has it in one place of the input, or nowhere.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from benchmarks.radii_attacks import look_at_row, oppose_heads, with_attention
from benchmarks.radii_families import (
    SIZES,
    Change,
    enlarge_unseen_rows,
    look_by_one_coordinate,
    offset_scores,
    prefer_one_key,
    prefer_until_underflow,
)
from jax_models.model.transformer import apply_layer, embedded

# Widest window of the family that has one.
WINDOW = 5
Draw = np.random.Generator
# From a model, its input [n] and draws to the changed model.
Build = Callable[[jm.Transformer, np.ndarray, Draw], jm.Transformer]


@dataclasses.dataclass(frozen=True)
class Family:
    """Models of one kind.

    Attributes:
        build: Changes a random model.
        zeros: Places of symbol 0 in the input; None for symbols drawn alike.
        equal: Whether the rows of all positions are equal.
        masks: Attention masks that the family is measured with.
        architecture: Of the random model.
    """

    build: Build
    zeros: int | None = None
    equal: bool = False
    masks: Sequence[str] = ("none", "future")
    architecture: jm.Architecture = dataclasses.field(default_factory=jm.Architecture)

    def draw(self, config: Mapping[str, Any]) -> tuple[jm.Transformer, np.ndarray]:
        """A model and an input.

        Args:
            config: `n`, `mask`, `dtype`, `vocab_size`, `seed` and `drawn`, the number
                of the model.
        """
        draw = np.random.default_rng([config["seed"], config["drawn"]])
        n, vocab_size = config["n"], config["vocab_size"]
        table = 0.3 * draw.standard_normal((n, SIZES["d_model"]))
        table[:, 0] = 0  # for families that look by the first coordinate
        table *= not self.equal
        model = jm.random_transformer(
            jax.random.key(config["drawn"]),
            num_layers=2,
            mask=config["mask"],
            score="dot_product",  # changes name scores, not queries times keys
            position=jm.PositionTable(jnp.asarray(table, config["dtype"])),
            dtype=config["dtype"],
            architecture=self.architecture,
            **{**SIZES, "vocab_size": vocab_size},
        )
        tokens = draw.integers(self.zeros is not None, vocab_size, n)
        tokens[draw.integers(n - 1, size=self.zeros or 0)] = 0
        if self.equal:
            tokens[:] = 0
        # Sizes that changes draw do not depend on the length.
        sizes = np.random.default_rng([config["seed"], config["drawn"]])
        return self.build(model, tokens, sizes), tokens


def _changed(change: Change) -> Build:
    """A change that does not depend on the input."""
    return lambda model, tokens, draw: change(model, draw)


def _sharpen(factor: float, *layers: int) -> Build:
    """Queries of some layers times a factor."""

    def build(model: jm.Transformer, tokens: np.ndarray, draw: Draw) -> jm.Transformer:
        for depth in layers:
            own: Any = model.layers[depth].attention
            bias = own.query_bias * factor
            query = own.query * factor
            model = with_attention(model, depth, query=query, query_bias=bias)
        return model

    return build


def _arriving(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Symbol 0, of score 5, replaces symbols of scores 0 and -95, or -95 alone."""
    scores = [5.0, 0.0, -95.0] if model.vocab_size > 2 else [5.0, -95.0]
    seen = jnp.asarray(scores, model.dtype)
    embedding = model.embedding.at[:, 0].set(seen)
    model = dataclasses.replace(model, embedding=embedding)
    return look_by_one_coordinate(model, 1.0)


def _opposed(model: jm.Transformer, tokens: np.ndarray, draw: Draw) -> jm.Transformer:
    """Heads of the first layer cancel but for a small share; layer 2 sees one row."""
    share = 1e-3 if model.dtype == jnp.float32 else 1e-8
    model = look_at_row(model, len(tokens) - 2, len(tokens))
    return oppose_heads(model, share)


def _offset_values(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """All values of both layers share 10^3 (10^6 in float64), which the bias takes away."""
    size = 1e3 if model.dtype == jnp.float32 else 1e6
    for depth in range(2):
        own: Any = model.layers[depth].attention
        bias = own.value_bias + size
        taken = own.output_bias - own.output @ bias.ravel()
        model = with_attention(model, depth, value_bias=bias, output_bias=taken)
    return model


def _scale_embedding(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Embeddings times 20."""
    return dataclasses.replace(model, embedding=20 * model.embedding)


def _with_block(model: jm.Transformer, **fields: Any) -> jm.Transformer:
    """The model with fields of the first layer's feed-forward block replaced."""
    first, *others = model.layers
    block: Any = first.feed_forward
    first = dataclasses.replace(
        first, feed_forward=dataclasses.replace(block, **fields)
    )
    return dataclasses.replace(model, layers=(first, *others))


def first_neurons(model: jm.Transformer, tokens: np.ndarray) -> jax.Array:
    """The first layer's neurons before their activation [n, d_ff]."""
    layer: Any = model.layers[0]

    def hidden(layer: Any, rows: jax.Array, heads: jax.Array) -> jax.Array:
        own, block = layer.attention, layer.feed_forward
        return (rows + heads @ own.output.T + own.output_bias) @ block.w1.T + block.b1

    return apply_layer(layer, embedded(model, jnp.asarray(tokens)), combine=hidden)[0]


def _kinks_exact(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Neurons are exactly 0 until symbol 0, alone in the first coordinate, stands anywhere.

    The rows of that coordinate and the neurons read and write nothing else.
    """
    own: Any = model.layers[0].attention
    block: Any = model.layers[0].feed_forward
    width = own.value.shape[1]
    only = (jnp.arange(model.width) == 0).astype(model.dtype)
    read = (jnp.arange(width * own.num_heads) % width == 0).astype(model.dtype)
    embedding = model.embedding.at[:, 0].set(0).at[0, 0].set(1)
    model = dataclasses.replace(model, embedding=embedding)
    model = with_attention(
        model,
        0,
        value=own.value.at[:, 0].multiply(only),
        value_bias=own.value_bias.at[:, 0].set(0),
        output=own.output.at[0].multiply(read),
        output_bias=own.output_bias.at[0].set(0),
    )
    return _with_block(model, w1=block.w1 * only, b1=jnp.zeros_like(block.b1))


def _kinks_rounded(
    model: jm.Transformer, tokens: np.ndarray, draw: Draw
) -> jm.Transformer:
    """Every neuron of the first layer is 0 at one row, but for rounding."""
    block: Any = model.layers[0].feed_forward
    neurons = first_neurons(_with_block(model, b1=0 * block.b1), tokens)
    at = draw.integers(len(tokens), size=neurons.shape[1])
    return _with_block(model, b1=-neurons[at, jnp.arange(neurons.shape[1])])


_plain = _changed(lambda model, draw: model)
FAMILIES: dict[str, Family] = {
    "as drawn": Family(_plain),
    "window": Family(
        _plain, masks=("future",), architecture=jm.Architecture(window=WINDOW)
    ),
    "dominant": Family(_changed(prefer_one_key), zeros=1),
    "underflow": Family(_changed(prefer_until_underflow), zeros=1),
    "leaving": Family(_changed(enlarge_unseen_rows), zeros=1),
    "arriving": Family(_changed(_arriving), zeros=0),
    "opposed heads": Family(_opposed),
    **{
        f"queries x {factor} in {where}": Family(_sharpen(factor, *layers))
        for factor, where, layers in (
            (20, "layer 1", (0,)),
            (20, "layer 2", (1,)),
            (20, "both", (0, 1)),
            (50, "both", (0, 1)),
        )
    },
    "equal rows": Family(_sharpen(20, 0, 1), equal=True),
    "offset of scores": Family(_changed(offset_scores)),
    "offset of values": Family(_changed(_offset_values)),
    "kinks at 0": Family(_changed(_kinks_exact), zeros=0),
    "kinks within roundings": Family(_kinks_rounded),
    "embedding x 20": Family(_changed(_scale_embedding)),
}
