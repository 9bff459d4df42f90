"""Random transformers with explicit keys: one family, any architecture."""

import dataclasses
from collections.abc import Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_models.arguments import (
    choose_name,
    choose_names,
    expect_integer,
    expect_kind,
    expect_number,
    refuse_unread,
    show,
)
from jax_models.errors import InputError
from jax_models.format.model_check import check_model
from jax_models.model.attention import Attention, Schedule
from jax_models.model.distance import DistanceBias
from jax_models.model.entry import Entry
from jax_models.model.feed_forward import FeedForward
from jax_models.model.gaussian import gaussian_numbers
from jax_models.model.layer import COMBINATIONS, NORM_PLACEMENTS, Layer
from jax_models.model.mask import MASKS
from jax_models.model.position import Coordinates, Position, PositionTable, Sinusoidal
from jax_models.model.readout import Head, Readout
from jax_models.model.rotary import Rotary
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Norm
from jax_models.model.scores import SCORES
from jax_models.model.transformer import Transformer
from jax_models.random_key import expect_key
from jax_models.run.device_memory import require_memory
from jax_models.run.float_type import check_float_type
from jax_models.weighting import WEIGHTINGS, make_weighting

HEADS = ("linear", "tied", "masked_lm", "pooler", "classifier")


def _position(key: Array, kind: Any, d_model: int, max_length: int, dtype: Any) -> Any:
    names = ("none", "sinusoidal", "table")
    if kind is not None and not isinstance(kind, get_args(Position)):
        choose_name("position", kind, names)
    if kind == "table":
        return PositionTable(gaussian_numbers(key, (max_length, d_model), dtype))
    encoding = Sinusoidal() if kind == "sinusoidal" else kind
    if isinstance(encoding, Sinusoidal):
        encoding.encode(1, d_model)  # refuses an odd width
    return None if encoding == "none" else encoding


def _places(same_layers: Any, num_layers: int) -> tuple[int, ...]:
    """Where each layer stands first."""
    if same_layers is None:
        return tuple(range(num_layers))
    places = tuple(same_layers) if isinstance(same_layers, Sequence) else ()
    for at, place in enumerate(places):
        expect_integer(f"same_layers[{at}]", place, 0)
    own = all(x <= at and places[x] == x for at, x in enumerate(places))
    if len(places) != num_layers or not own:
        raise InputError(
            f"same_layers = {show(same_layers)}; expected num_layers = {num_layers} "
            "numbers, each of its own layer or of an earlier one that has its own weights"
        )
    return places


def random_transformer(
    key: Array,
    *,
    num_layers: int,
    num_heads: int,
    d_model: int,
    d_ff: int,
    vocab_size: int,
    weighting: str | Sequence[str] = "softmax",
    mask: str = "none",
    score: str = "scaled_dot_product",
    layer_norm: str = "none",
    layer_norm_epsilon: float = 1e-5,
    norm: str = "layer_norm",
    activation: str = "relu",
    gated: bool = False,
    combine: str = "residual",
    key_value_heads: int | None = None,
    query_key_norm: str | None = None,
    distance_bias: DistanceBias | None = None,
    window: int | None = None,
    rotary: Rotary | None = None,
    position: str | Sinusoidal | Coordinates | PositionTable | None = "sinusoidal",
    temperature: Schedule | float | None = None,
    same_layers: Sequence[int] | None = None,
    num_classes: int | None = None,
    head: str = "linear",
    final_norm: bool = False,
    entry_norm: bool = False,
    d_embedding: int | None = None,
    biases: bool = True,
    scale: float = 1.0,
    max_length: int = 512,
    tie_resolution: float | None = None,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns a transformer with Gaussian weights of deviation scale / sqrt(fan-in).

    Embedding rows have deviation `scale` per coordinate; biases, where present, are
    Gaussian of deviation 0.1 scale; layer-norm scales are 1 + 0.1 Gaussian. The weights
    depend on the key and the shapes only, so models that differ in weighting, mask or
    temperature alone share them.

    Args:
        key: a JAX random key.
        num_layers: L >= 0.
        num_heads: H, a divisor of d_model; d_k = d_v = d_model / H.
        d_model: d.
        d_ff: width of the feed-forward blocks.
        vocab_size: V >= 1.
        weighting: one name for all layers, or one per layer.
        mask: one of the five masks.
        score: dot_product, scaled_dot_product or additive.
        layer_norm: none, pre or post.
        layer_norm_epsilon: added to the variance.
        norm: which norm stands there, one of `NORMS`.
        activation: one of `ACTIVATIONS`.
        gated: whether the feed-forward blocks have a gate.
        combine: residual or concat (concat only without layer norm).
        key_value_heads: how many heads have keys and values of their own, a divisor of
            H; groups of the others share them. None for all.
        query_key_norm: which norm queries and keys of every head have; None for none.
        distance_bias: what is added to scores by the distance; None for nothing.
        window: rows see positions that are less than this away; None for all.
        rotary: what turns queries and keys by their positions; None for nothing.
        position: none, sinusoidal, table, or a position encoding.
        temperature: a schedule for every layer; a number is a constant one, None 1.
        same_layers: for each layer, which of the first ones it is, as (0, 1, 0, 0); by
            default each is its own.
        num_classes: classes of a read-out; None for no read-out.
        head: linear, the read-out; tied, the embedding; masked_lm, a map, the activation,
            a norm and the embedding; pooler, a map and tanh; classifier, both and a
            map to the classes.
        final_norm: whether a last norm follows.
        entry_norm: whether a norm stands before the first layer.
        d_embedding: width of embeddings and positions, which are then projected to
            d_model; None for d_model itself.
        biases: whether attention has biases (the feed-forward block always has them).
        scale: of the weights.
        max_length: rows of a position table.
        tie_resolution: width of a score cell of hard weightings.
        dtype: float32 or float64.

    Returns:
        The model.

    Raises:
        InputError: for an unknown name, sizes that do not fit, and numbers that give no
            model: a temperature that is not positive, a scale that is not finite.
    """
    check_float_type(dtype, "the model asked for")
    for name, size, least in (
        ("num_layers", num_layers, 0),
        ("num_heads", num_heads, 1),
        ("d_model", d_model, 1),
        ("d_ff", d_ff, 1),
        ("vocab_size", vocab_size, 1),
        ("max_length", max_length, 1),
        ("num_classes", 1 if num_classes is None else num_classes, 1),
        ("window", 1 if window is None else window, 1),
        ("key_value_heads", 1 if key_value_heads is None else key_value_heads, 1),
        ("d_embedding", 1 if d_embedding is None else d_embedding, 1),
    ):
        expect_integer(name, size, least)
    for name, wanted in (
        ("final_norm", final_norm),
        ("entry_norm", entry_norm),
        ("biases", biases),
        ("gated", gated),
    ):
        expect_kind(name, wanted, bool | np.bool_, "True or False")
    scale = expect_number("scale", scale, 0)
    # No Gaussian number that is drawn is 16 or more.
    if 16 * scale >= jnp.finfo(dtype).max:
        name = jnp.dtype(dtype).name
        raise InputError(f"scale = {scale}; expected one that {name} can hold 16 of")
    into = (1 + (combine == "concat")) * (1 + gated)
    per_layer = (4 * d_model + (1 + into) * d_ff) * d_model
    rows = vocab_size + (num_classes or 0) + max_length * (position == "table")
    wide = max(d_model, d_embedding or 0)
    needed = (num_layers * per_layer + rows * wide) * jnp.dtype(dtype).itemsize
    require_memory("a model of these sizes", needed)
    if d_model % num_heads:
        raise InputError(
            f"num_heads = {num_heads} does not divide d_model = {d_model}; choose a "
            "divisor, so that every head has width d_model / num_heads"
        )
    groups = key_value_heads or num_heads
    if num_heads % groups:
        raise InputError(
            f"key_value_heads = {groups} does not divide num_heads = {num_heads}; "
            "choose a divisor, so that every group has as many heads"
        )
    choose_name("mask", mask, MASKS)
    choose_name("score", score, tuple(SCORES))
    choose_name("layer_norm", layer_norm, NORM_PLACEMENTS)
    choose_name("norm", norm, tuple(NORMS))
    choose_name("query_key_norm", query_key_norm or norm, tuple(NORMS))
    choose_name("activation", activation, tuple(ACTIVATIONS))
    choose_name("combine", combine, COMBINATIONS)
    choose_name("head", head, HEADS)
    if head == "classifier" and num_classes is None:
        raise InputError('head="classifier" needs num_classes, how many classes it has')
    if combine == "concat" and layer_norm != "none":
        raise InputError('combine="concat" goes only with layer_norm="none"')
    if combine == "parallel" and layer_norm == "post":
        raise InputError('combine="parallel" goes only with layer_norm="none" or "pre"')
    every = [weighting] * num_layers if isinstance(weighting, str) else weighting
    names = choose_names("weighting", every, tuple(WEIGHTINGS))
    if not any(WEIGHTINGS[name].hard for name in names):
        why = "no layer has hard attention"
        refuse_unread("tie_resolution", tie_resolution, None, why)
    if len(names) != num_layers:
        raise InputError(f"{len(names)} weightings for num_layers = {num_layers}")
    places = _places(same_layers, num_layers)
    for at, place in enumerate(places):
        if names[at] != names[place]:
            raise InputError(
                f"weighting[{at}] = {names[at]!r}, but the layer is the same as layer "
                f"{place}, whose weighting is {names[place]!r}"
            )
    width = d_model // num_heads
    schedule: Any = temperature  # a number becomes one where the model is checked

    def gaussian(key: Array, *shape: int, fan_in: int) -> Array:
        return gaussian_numbers(key, shape, dtype, scale / fan_in**0.5)

    def bias(key: Array, *shape: int) -> Array:
        return gaussian_numbers(key, shape, dtype, 0.1 * scale)

    def draw_norm(key: Array, name: str = norm, size: int = d_model) -> Norm:
        kind = NORMS[name]
        keys = jax.random.split(key)[: len(kind.tensors())]
        scale, *others = (bias(key, size) for key in keys)
        return kind(1 + scale, *others, layer_norm_epsilon)

    def layer(key: Array, name: str) -> Layer:
        keys = iter(jax.random.split(key, 16))
        concat = combine == "concat"
        read = d_model + d_model * concat
        own = (num_heads, groups, groups)
        matrices = [
            gaussian(next(keys), count, width, d_model, fan_in=d_model) for count in own
        ]
        output = gaussian(next(keys), d_model, d_model, fan_in=d_model)
        offsets = [bias(next(keys), count, width) for count in own]
        output_bias, vector = bias(next(keys), d_model), next(keys)
        norms_of_heads: list[Norm | None] = [None, None]
        if query_key_norm is not None:
            of_heads = jax.random.split(jax.random.fold_in(key, 1))
            norms_of_heads = [draw_norm(x, query_key_norm, width) for x in of_heads]
        attention = Attention(
            *matrices,
            output=None if concat else output,
            query_bias=offsets[0] if biases else None,
            key_bias=offsets[1] if biases else None,
            value_bias=offsets[2] if biases else None,
            output_bias=output_bias if biases and not concat else None,
            score_vector=(
                gaussian(vector, num_heads, width, fan_in=1)
                if SCORES[score].takes_vector
                else None
            ),
            weighting=make_weighting(
                name, tie_resolution if WEIGHTINGS[name].hard else None
            ),
            temperature=schedule,
            mask=mask,  # pyright: ignore[reportArgumentType]
            score=score,
            distance_bias=jax.tree.map(lambda x: jnp.asarray(x, dtype), distance_bias),
            query_norm=norms_of_heads[0],
            key_norm=norms_of_heads[1],
            window=window,
            rotary=rotary,
        )
        feed_forward = FeedForward(
            gaussian(next(keys), d_ff, read, fan_in=read),
            bias(next(keys), d_ff),
            gaussian(next(keys), d_model, d_ff, fan_in=d_ff),
            bias(next(keys), d_model),
            activation,
        )
        norms = [draw_norm(next(keys)), draw_norm(next(keys))]
        if gated:
            gate, gate_bias = jax.random.split(next(keys))
            feed_forward = dataclasses.replace(
                feed_forward,
                gate=gaussian(gate, d_ff, read, fan_in=read),
                gate_bias=bias(gate_bias, d_ff),
            )
        none = layer_norm == "none"
        return Layer(
            attention,
            feed_forward,
            None if none else norms[0],
            None if none else norms[1],
            layer_norm,  # pyright: ignore[reportArgumentType]
            combine,  # pyright: ignore[reportArgumentType]
        )

    expect_key(key)
    ends, *layer_keys = jax.random.split(key, num_layers + 1)

    def draw_head(key: Array, bias_key: Array) -> Readout | Head | None:
        if head == "linear":
            return None if num_classes is None else last_map(Readout, key, bias_key)
        keys = jax.random.split(key, 5)
        offset = bias(bias_key, vocab_size)
        dense = Affine(
            gaussian(keys[0], d_model, d_model, fan_in=d_model), bias(keys[1], d_model)
        )
        match head:
            case "tied":
                return Head((), offset, True)
            case "masked_lm":
                steps = (dense, ACTIVATIONS[activation], draw_norm(keys[2]))
                return Head(steps, offset, True)
            case "pooler":
                return Head((dense, ACTIVATIONS["tanh"]))
        last = last_map(Affine, keys[3], keys[4])
        return Head((dense, ACTIVATIONS["tanh"], last))

    def last_map(kind: Any, key: Array, bias_key: Array) -> Any:
        assert num_classes is not None
        weight = gaussian(key, num_classes, d_model, fan_in=d_model)
        return kind(weight, bias(bias_key, num_classes))

    table, embedding, last, out, out_bias = jax.random.split(ends, 5)
    narrow = d_embedding or d_model
    entering = jax.random.split(jax.random.fold_in(ends, 1), 3)
    entry = Entry(
        draw_norm(entering[0], size=narrow) if entry_norm else None,
        gaussian(entering[1], d_model, narrow, fan_in=narrow) if d_embedding else None,
        bias(entering[2], d_model) if d_embedding and biases else None,
    )
    drawn = {at: layer(layer_keys[at], names[at]) for at in dict.fromkeys(places)}
    model = Transformer(
        embedding=gaussian_numbers(embedding, (vocab_size, narrow), dtype, scale),
        layers=tuple(drawn[at] for at in places),
        position=_position(table, position, narrow, max_length, dtype),
        entry=entry if entry.operations else None,
        final_norm=draw_norm(last) if final_norm else None,
        readout=draw_head(out, out_bias),
    )
    return check_model(model)


def init_transformer(key: Array, **architecture: Any) -> Transformer:
    """Returns a transformer initialised for training.

    The same family as `random_transformer`, with what training wants: biases zero,
    layer-norm scales one, embedding rows of norm about one.

    Args:
        key: a JAX random key.
        **architecture: as in `random_transformer`.

    Returns:
        The model.

    Raises:
        InputError: as in `random_transformer`.
    """
    model = random_transformer(key, **architecture)

    def settle(path: Any, leaf: Array) -> Array:
        name = jax.tree_util.keystr(path)
        if ".norm" in name or ".final_norm" in name:
            return jnp.ones_like(leaf) if name.endswith("scale") else leaf * 0
        if ".readout" in name and name.endswith(".scale"):
            return jnp.ones_like(leaf)
        if "bias" in name or name.endswith((".b1", ".b2")):
            return jnp.zeros_like(leaf)
        if name.endswith(".embedding"):
            return leaf / model.width**0.5
        return leaf

    return jax.tree_util.tree_map_with_path(settle, model)
