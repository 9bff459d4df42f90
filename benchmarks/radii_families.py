"""Families of models that lose digits, from which `benchmarks.radii` draws.

The families drawn by `_drawn` have tensors of one shape, so that they share a compiled
program; then come constructions, a compiled formula, and models trained for a while.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from benchmarks.published_parity import published_parity
from benchmarks.subject import change_attention, sharpen
from jax_models.languages import ParitySource
from jax_models.programs.logic import compile_formula, parse_formula
from jax_models.training import Training, train

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 6, "d_ff": 8, "vocab_size": 4}
LENGTH = 8
# Beside a dominant column e^-gap is what a float type holds no more.
UNDERFLOW = {"float32": (87.0, 105.0), "float64": (708.0, 744.0)}

# Of one layer, of two, three and five, and their modes.
FORMULAS = (
    ("Q_a S Q_b", "FU"),
    ("(Q_a S Q_b) and not (Q_b S Q_a)", "FU"),
    ("not (Q_a S (Q_b S Q_a))", "U"),
    ("not (Q_a S (Q_b S Q_a))", "FT"),
)

Config = Mapping[str, Any]
Change = Callable[[jm.Transformer, np.random.Generator], jm.Transformer]


def _peaked(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """Model with queries scaled by 3 to 300, for scores of tens and hundreds."""
    factor = float(10.0 ** draw.uniform(0.5, 2.5))
    return sharpen(model, factor)


def offset_scores(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """Model whose scores share an offset of 10^3 to 10^7 within a row."""
    size = float(10.0 ** draw.uniform(1.5, 3.5))

    def change(x: Any) -> Any:
        return dataclasses.replace(
            x,
            key=x.key.at[:, 0].set(0),
            query_bias=x.query_bias.at[:, 0].set(size),
            key_bias=x.key_bias.at[:, 0].set(size),
        )

    return change_attention(model, change)


def _dominant(gap: float) -> Change:
    """Function that makes symbol 0 a key preferred by `gap`, with a value of 0."""

    def change(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
        embedding = model.embedding.at[:, 0].set(0).at[0].set(0).at[0, 0].set(1)
        model = dataclasses.replace(model, embedding=embedding)
        first: Any = model.layers[0].attention
        shape = (first.key.shape[0], first.key.shape[2] - 1)
        small = jnp.asarray(0.1 * draw.standard_normal(shape), model.dtype)
        key = jnp.zeros_like(first.key).at[:, 0, 1:].set(small)
        key = key.at[:, 0, 0].set(float(gap))
        first = dataclasses.replace(
            first,
            query=jnp.zeros_like(first.query),
            query_bias=jnp.zeros_like(first.query_bias).at[:, 0].set(1),
            key=key,
            key_bias=jnp.zeros_like(first.key_bias),
            value=first.value.at[:, :, 0].set(0),
            value_bias=jnp.zeros_like(first.value_bias),
        )
        layer = dataclasses.replace(model.layers[0], attention=first)
        return dataclasses.replace(model, layers=(layer, *model.layers[1:]))

    return change


def prefer_one_key(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """Model in which every row prefers symbol 0 by 5 to 60 (300 in float64)."""
    most = 60.0 if model.dtype == jnp.float32 else 300.0
    return _dominant(draw.uniform(5.0, most))(model, draw)


def prefer_until_underflow(
    model: jm.Transformer, draw: np.random.Generator
) -> jm.Transformer:
    """Model in which the weights of all keys but symbol 0 underflow."""
    return _dominant(draw.uniform(*UNDERFLOW[str(model.dtype)]))(model, draw)


def _biases(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """Model with a dominant symbol and scores with an offset of 1000."""
    model = _dominant(draw.uniform(10.0, 30.0))(model, draw)
    first: Any = model.layers[0].attention
    root = float(np.sqrt(1000.0))
    first = dataclasses.replace(
        first,
        query_bias=first.query_bias.at[:, 1].set(root),
        key_bias=first.key_bias.at[:, 1].set(root),
    )
    layer = dataclasses.replace(model.layers[0], attention=first)
    return dataclasses.replace(model, layers=(layer, *model.layers[1:]))


def look_by_one_coordinate(model: jm.Transformer, gap: float) -> jm.Transformer:
    """Model whose queries read only the keys' first coordinate, which nothing writes."""

    def change(x: Any) -> Any:
        return dataclasses.replace(
            x,
            query=jnp.zeros_like(x.query),
            query_bias=jnp.zeros_like(x.query_bias).at[:, 0].set(1),
            key=jnp.zeros_like(x.key).at[:, 0, 0].set(float(gap)),
            output=x.output.at[0].set(0),
        )

    model = change_attention(model, change)
    blocks = [layer.feed_forward for layer in model.layers]
    layers = tuple(
        dataclasses.replace(
            layer,
            feed_forward=dataclasses.replace(
                block,
                w2=block.w2.at[0].set(0),
                b2=None if block.b2 is None else block.b2.at[0].set(0),
            ),
        )
        for layer, block in zip(model.layers, blocks, strict=True)
    )
    return dataclasses.replace(model, layers=layers)


def enlarge_unseen_rows(
    model: jm.Transformer, draw: np.random.Generator
) -> jm.Transformer:
    """Model in which symbol 0 is up to 10^12 times larger and no row attends to it."""
    single = model.dtype == jnp.float32
    size = float(10.0 ** draw.uniform(1, 5 if single else 12))
    seen = jnp.asarray([-1.0, 1.0, 0.1, 0.2], model.dtype)[: model.vocab_size]
    embedding = model.embedding.at[0].multiply(size).at[:, 0].set(seen)
    model = dataclasses.replace(model, embedding=embedding)
    return look_by_one_coordinate(model, draw.uniform(5, 40 if single else 80))


def _opposed(
    config: Config, draw: np.random.Generator
) -> tuple[jm.Transformer, np.ndarray]:
    """Model and input with two symbols of equal keys and large opposite values."""

    def change(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
        most = 5 if model.dtype == jnp.float32 else 10
        size = float(10.0 ** draw.uniform(1, most))
        seen = jnp.asarray([0.0, 0.0, 0.3, 1.0], model.dtype)
        embedding = model.embedding.at[:2].set(0).at[:, 1].set(0).at[:, 0].set(seen)
        embedding = embedding.at[0, 1].set(1).at[1, 1].set(-1)
        model = look_by_one_coordinate(
            dataclasses.replace(model, embedding=embedding), draw.uniform(0.5, 3)
        )
        first: Any = model.layers[0].attention
        value = first.value.at[:, :, 1].multiply(size)
        first = dataclasses.replace(first, value=value)
        layer = dataclasses.replace(model.layers[0], attention=first)
        return dataclasses.replace(model, layers=(layer, *model.layers[1:]))

    model, tokens = _drawn(change, 4, config, draw)
    tokens = np.where(tokens < 2, tokens + 2, tokens)
    tokens[:2] = 0, 1
    # Places that do not repeat, in a coordinate that is read only as it stands.
    places = jnp.zeros((LENGTH, model.width), model.dtype)
    shuffled = jnp.asarray(1 + draw.permutation(LENGTH) / LENGTH, model.dtype)
    places = places.at[:, -1].set(shuffled)
    return dataclasses.replace(model, position=jm.PositionTable(places)), tokens


def _unread(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """Model whose keys and values do not read two symbols' difference, up to rounding."""
    difference = model.embedding[1] - model.embedding[0]
    along = difference / jnp.sqrt(difference @ difference)

    def change(x: Any) -> Any:
        parts = {name: getattr(x, name) for name in ("key", "value")}
        blind = {k: v - (v @ along)[..., None] * along for k, v in parts.items()}
        return dataclasses.replace(x, **blind)

    return change_attention(model, change)


def _plain(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    return model


def _drawn(
    change: Change,
    symbols: int,
    config: Config,
    draw: np.random.Generator,
    position: str | None = None,
) -> tuple[jm.Transformer, np.ndarray]:
    """Random model after `change`, and an input over `symbols` symbols."""
    model = jm.random_transformer(
        jax.random.key(config["drawn"]),
        num_layers=config["layers"],
        position=position,
        score="dot_product",
        dtype=config["dtype"],
        **SIZES,
    )
    tokens = draw.integers(0, symbols, LENGTH)
    tokens[draw.integers(LENGTH)] = 0
    return change(model, draw), tokens


def _bits(
    build: Callable[[Any], jm.Transformer], config: Config, draw: np.random.Generator
) -> tuple[jm.Transformer, np.ndarray]:
    """Model of `build`, and an input of bits with a query token at the end."""
    return build(config["dtype"]), np.append(draw.integers(0, 2, LENGTH - 1), 2)


def _formula(
    config: Config, draw: np.random.Generator
) -> tuple[jm.Transformer, np.ndarray]:
    """Model of a compiled temporal-logic formula, and an input."""
    text, mode = FORMULAS[config["drawn"] % len(FORMULAS)]
    return _compiled(text, mode, config["dtype"]), draw.integers(0, 2, LENGTH)


@functools.cache
def _compiled(text: str, mode: str, dtype: str) -> jm.Transformer:
    return compile_formula(parse_formula(text), "ab", mode, dtype=dtype)


def _trained(
    config: Config, draw: np.random.Generator
) -> tuple[jm.Transformer, np.ndarray]:
    """Model trained on PARITY for a hundred steps, and an input."""
    return _learned(config["dtype"], config["drawn"] % 8), draw.integers(0, 2, LENGTH)


@functools.cache
def _learned(dtype: str, seed: int) -> jm.Transformer:
    start, batches = jax.random.split(jax.random.key(seed))
    shape = {**SIZES, "vocab_size": 2, "num_layers": 1}
    model = jm.init_transformer(
        start,
        mask="future",
        dtype=dtype,
        **shape,
        architecture=jm.Architecture(num_classes=3),
    )
    training = Training(length=LENGTH, steps=100, batch_size=16)
    return train(model, ParitySource(), training, batches)[0]


Build = Callable[[Config, np.random.Generator], tuple[jm.Transformer, np.ndarray]]

# Families of random models, of one layer or two.
DRAWN: dict[str, Build] = {
    "plain": functools.partial(_drawn, _plain, 4),
    "peaked": functools.partial(_drawn, _peaked, 4),
    "equal rows": functools.partial(_drawn, _peaked, 1),
    "offset": functools.partial(_drawn, offset_scores, 4),
    "dominant": functools.partial(_drawn, prefer_one_key, 4),
    "underflow": functools.partial(_drawn, prefer_until_underflow, 4),
    "biases": functools.partial(_drawn, _biases, 4),
    "leaving": functools.partial(_drawn, enlarge_unseen_rows, 4, position="sinusoidal"),
    "opposed": _opposed,
    "unread": functools.partial(_drawn, _unread, 4),
}
# Those that have the layers they have.
BUILT: dict[str, Build] = {
    "published parity": functools.partial(
        _bits, lambda dtype: published_parity(1 / np.sqrt(5), dtype)
    ),
    "parity": functools.partial(
        _bits, lambda dtype: jm.build_preset("parity", dtype=dtype)
    ),
    "first": functools.partial(
        _bits, lambda dtype: jm.build_preset("first", dtype=dtype)
    ),
    "formula": _formula,
    "trained": _trained,
}
FAMILIES = {**DRAWN, **BUILT}
