"""Models from the config and tensors of a file, and the tensors of a model by name.

The config is a JSON object that states all of a model but its tensors. The entry of a model
is the norm and projection between embedding and layers; its head maps the last layer's rows
to logits.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jax_models.arguments import not_finite_at, show
from jax_models.errors import InputError
from jax_models.format.config import NORMED, decode_config, first_place
from jax_models.format.pieces import (
    DISTANCES,
    EMBEDDING,
    LINEAR,
    decode_distance,
    tensor_of,
)
from jax_models.jax_arguments import check_float_type
from jax_models.model.attention import Attention
from jax_models.model.entry import Entry
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.position import PairTable, Position, PositionTable
from jax_models.model.readout import Head, Readout
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Norm
from jax_models.model.scores import SCORES
from jax_models.model.temperature import ConstantTemperature
from jax_models.model.transformer import Transformer
from jax_models.weighting import make_weighting

Tensors = dict[str, Any]  # arrays of NumPy or JAX by their names in a file


class _Reader:
    """Tensors of a file, taken by name and checked; `left` holds those not taken."""

    def __init__(self, tensors: Tensors) -> None:
        self.left = dict(tensors)

    def take(self, name: str, *shape: int | str) -> Array:
        """Required tensor as a JAX array, checked for `shape` and finite numbers."""
        if name not in self.left:
            raise InputError(
                f"tensor {name!r} is missing; expected shape {_show(shape)}"
            )
        # What is left in the end belongs to no part of the config, and is refused.
        found = self.left.pop(name)
        # Strings in `shape` stand for any size >= 1.
        fits = found.ndim == len(shape) and all(
            size >= 1 if isinstance(want, str) else size == want
            for size, want in zip(found.shape, shape, strict=True)
        )
        if not fits:
            raise InputError(
                f"tensor {name!r} has shape {found.shape}; expected {_show(shape)}"
            )
        if (at := not_finite_at(np.asarray(found))) is not None:
            raise InputError(
                f"tensor {name!r} has the non-finite value {found[at]} at {at}; every "
                "parameter must be finite"
            )
        return jnp.asarray(found)

    def take_optional(self, name: str, *shape: int | str) -> Array | None:
        """Returns the tensor, checked as by `take`, or None if it is missing."""
        return self.take(name, *shape) if name in self.left else None


def _show(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _norm(reader: _Reader, name: str, width: int, entry: dict[str, Any]) -> Norm:
    kind = NORMS[entry["norm"]]
    tensors = [reader.take(f"{name}.{tensor}", width) for tensor in kind.tensors()]
    return kind(*tensors, entry["layer_norm_epsilon"])


def _layer(reader: _Reader, at: int, entry: dict[str, Any], d: int) -> Layer:
    prefix = f"layers.{at}.attention"
    query = reader.take(f"{prefix}.query", "H", "d_k", d)
    heads, key_width, _ = query.shape
    groups = entry["key_value_heads"] or heads
    if heads % groups:
        raise InputError(
            f"layers[{at}].key_value_heads = {groups}; expected a divisor of the "
            f"{heads} heads"
        )
    value = reader.take(f"{prefix}.value", groups, "d_v", d)
    joined = heads * value.shape[1]
    concat = entry["combine"] == "concat"
    rotary = entry["rotary"]
    if rotary is not None and rotary.dims > key_width:
        raise InputError(
            f"layers[{at}].rotary.dims = {rotary.dims}; expected at most d_k = {key_width}"
        )
    norms_of_heads: dict[str, Any] = {
        name: None
        if entry[name] is None
        else _norm(reader, f"{prefix}.{name}", key_width, entry[name])
        for name in NORMED
    }
    distance = entry["distance_bias"]
    if distance is not None:
        shape = (heads, *DISTANCES[distance["kind"]][1])
        distance = decode_distance(
            distance, reader.take(f"{prefix}.distance_bias", *shape)
        )
        distance.biases(jnp.zeros(1, int), jnp.zeros(1, int), 1)  # refuses bad buckets
    biases: dict[str, Any] = {
        f"{name}_bias": reader.take_optional(f"{prefix}.{name}_bias", *shape)
        for name, shape in (
            ("query", (heads, key_width)),
            ("key", (groups, key_width)),
            ("value", (groups, value.shape[1])),
        )
    }
    attention = Attention(
        query=query,
        key=reader.take(f"{prefix}.key", groups, key_width, d),
        value=value,
        output=None if concat else reader.take(f"{prefix}.output", d, joined),
        output_bias=(
            None if concat else reader.take_optional(f"{prefix}.output_bias", d)
        ),
        score_vector=(
            reader.take(f"{prefix}.score_vector", heads, key_width)
            if SCORES[entry["score"]].takes_vector
            else None
        ),
        weighting=make_weighting(entry["weighting"], entry["tie_resolution"]),
        temperature=entry["temperature"],
        mask=entry["mask"],
        score=entry["score"],
        window=entry["window"],
        rotary=rotary,
        **norms_of_heads,
        distance_bias=distance,
        **biases,
    )
    prefix = f"layers.{at}.ffn"
    w1 = reader.take(f"{prefix}.w1", "f", d + joined if concat else d)
    feed_forward = FeedForward(
        w1,
        reader.take_optional(f"{prefix}.b1", w1.shape[0]),
        reader.take(f"{prefix}.w2", d, w1.shape[0]),
        reader.take_optional(f"{prefix}.b2", d),
        entry["activation"],
        reader.take_optional(f"{prefix}.gate", *w1.shape),
        reader.take_optional(f"{prefix}.gate_bias", w1.shape[0]),
    )
    # A bias of a gate that is not there: taking the gate raises that it is missing.
    if feed_forward.gate is None and feed_forward.gate_bias is not None:
        reader.take(f"{prefix}.gate", *w1.shape)
    norms: list[Norm | None] = [None, None]
    if entry["layer_norm"] != "none":
        if entry["norm1"]:
            norms[0] = _norm(reader, f"layers.{at}.norm1", d, entry)
        norms[1] = _norm(reader, f"layers.{at}.norm2", d, entry)
    return Layer(
        attention,
        feed_forward,
        norms[0],
        norms[1],
        entry["layer_norm"],
        entry["combine"],
    )


def _entry(reader: _Reader, width: int, config: dict[str, Any]) -> Entry | None:
    norm = projection = bias = None
    if "entry.norm.scale" in reader.left or "entry.norm.bias" in reader.left:
        norm = _norm(reader, "entry.norm", width, config)
    if "entry.projection" in reader.left:
        projection = reader.take("entry.projection", "d", width)
        bias = reader.take_optional("entry.projection_bias", projection.shape[0])
    absent = norm is None and projection is None
    return None if absent else Entry(norm, projection, bias)


def _head(
    reader: _Reader,
    entry: list[Any],
    # width of the head's input rows
    width: int,
    embedding: Float[Array, "symbols d_embedding"],
) -> Head:
    steps, tied, bias = [], False, None
    for at, one in enumerate(entry):
        name = f"head.{at}"
        if isinstance(one, dict):
            said = {"norm": one["norm"], "layer_norm_epsilon": one["epsilon"]}
            steps.append(_norm(reader, name, width, said))
        elif one == LINEAR:
            weight = reader.take(f"{name}.weight", "c", width)
            width = weight.shape[0]
            steps.append(Affine(weight, reader.take_optional(f"{name}.bias", width)))
        elif one == EMBEDDING:
            if embedding.shape[1] != width:
                raise InputError(
                    f"head[{at}] = {one!r} reads rows of width {embedding.shape[1]}; "
                    f"what comes before it has width {width}"
                )
            tied = True
            bias = reader.take_optional(f"{name}.bias", embedding.shape[0])
        else:
            steps.append(ACTIVATIONS[one])
    return Head(tuple(steps), bias, tied)


def build_model(
    config: Any, tensors: Tensors, *, described: bool = False
) -> Transformer:
    """Returns the model that a config and its tensors describe.

    Args:
        config: the parsed JSON config.
        tensors: arrays by name, all float32 or all float64.
        described: whether `describe_model` made the config: then layers may differ in
            keys that a file has once for all layers.

    Raises:
        InputError: naming the tensor or key, what was found and what was expected.
    """
    config = decode_config(config, tensors, described=described)
    for name, tensor in tensors.items():
        if tensor.dtype not in (np.float32, np.float64):
            raise InputError(
                f"tensor {name!r} has type {tensor.dtype}; expected float32 or float64"
            )
    kinds = {str(tensor.dtype) for tensor in tensors.values()}
    if len(kinds) > 1:
        raise InputError(f"tensors mix the types {sorted(kinds)}; expected one of them")
    reader = _Reader(tensors)
    if "embedding" not in tensors:
        raise InputError("tensor 'embedding' is missing; expected shape (V, d)")
    check_float_type(tensors["embedding"].dtype, "the model")
    embedding = reader.take("embedding", "V", "d")
    vocab_size, width = embedding.shape
    entering = _entry(reader, width, config)
    projection = entering and entering.projection
    d = width if projection is None else projection.shape[0]
    position = _position(reader, config["position"], vocab_size, width)
    layers: list[Layer] = []
    for k, entry in enumerate(config["layers"]):
        same = entry.get("same_as")
        # The same object: its weights are there once, in memory and for derivatives.
        layers.append(_layer(reader, k, entry, d) if same is None else layers[same])
    final_norm = readout = None
    if "final_norm.scale" in tensors or "final_norm.bias" in tensors:
        final_norm = _norm(reader, "final_norm", d, config)
    if config["head"] is not None:
        readout = _head(reader, config["head"], d, embedding)
    elif "readout.weight" in tensors:
        weight = reader.take("readout.weight", "classes", d)
        readout = Readout(weight, reader.take_optional("readout.bias", weight.shape[0]))
    if reader.left:
        raise InputError(
            f"unexpected tensors {sorted(reader.left)}; the config describes "
            f"{len(layers)} layers and names nothing that they belong to"
        )
    accept = config.get("accept")
    if accept is not None:
        # A model of its ends alone: `classes` follows the widths of the head's maps.
        end = Transformer(embedding, (), readout=readout)
        classes = end.classes or 0
        if accept.class_ >= classes:
            raise InputError(
                f"accept.class = {accept.class_}; the read-out has {classes} classes"
            )
    if (head_row := config.get("head_row")) is not None and readout is None:
        raise InputError(
            f"head_row = {head_row!r}, and the model has no head to be of it"
        )
    if (dropout := config.get("token_dropout")) is not None:
        _expect_symbol("token_dropout.mask =", dropout.mask, vocab_size)
    padding = config.get("padding")
    vocabulary, substitutable = config.get("vocabulary"), config.get("substitutable")
    if padding is not None:
        _check_padding(padding.symbol, vocab_size, substitutable, position, layers)
    if vocabulary is not None and len(vocabulary) != vocab_size:
        raise InputError(
            f"vocabulary has {len(vocabulary)} names; the embedding has {vocab_size} "
            "symbols"
        )
    for symbol in substitutable or ():
        _expect_symbol("substitutable lists", symbol, vocab_size)
    every = range(vocab_size)
    others = set(every).difference(every if substitutable is None else substitutable)
    special, seen = config.get("special"), others - {padding and padding.symbol}
    if not seen.issuperset(special or ()):
        raise InputError(
            f"special = {show(special)}; expected symbols of the model that are neither "
            "substitutable nor padding"
        )
    return Transformer(
        embedding,
        tuple(layers),
        position,
        final_norm,
        readout,
        accept,
        None if vocabulary is None else tuple(vocabulary),
        None if substitutable is None else tuple(substitutable),
        entry=entering,
        token_dropout=dropout,
        pooling=config.get("pooling"),
        padding=padding,
        head_row=head_row,
        special=None if special is None else tuple(special),
    )


def _expect_symbol(what: str, symbol: int, vocab_size: int) -> None:
    if not 0 <= symbol < vocab_size:
        raise InputError(f"{what} {symbol}; symbols are 0 to {vocab_size - 1}")


def _position(
    reader: _Reader, said: Any, vocab_size: int, width: int
) -> Position | None:
    """Position encoding: a table, or the formula `said`; None if the model has neither.

    For a table that adds a row behind a separator symbol, `said` is that symbol.
    """
    if isinstance(said, int):
        table = reader.take("position", "n_max", width)
        _expect_symbol("position.separator =", said, vocab_size)
        return PairTable(table, reader.take("position.second", width), said)
    if "position" not in reader.left:
        return said
    if said is not None:
        raise InputError(
            "the file has a tensor 'position' and config.position names a formula; "
            "expected one of the two"
        )
    return PositionTable(reader.take("position", "n_max", width))


def _check_padding(
    padding: int,
    vocab_size: int,
    substitutable: Sequence[int] | None,
    position: Any,
    layers: Sequence[Layer],
) -> None:
    """Raises `InputError` for a padding symbol that is unknown or substitutable.

    Also if a temperature or position encoding depends on the length, which counts padding.
    """
    _expect_symbol("padding =", padding, vocab_size)
    if substitutable is None or padding in substitutable:
        raise InputError(
            f"padding = {padding}, which is no token to put in; expected `substitutable` "
            "to list the others"
        )
    # A temperature or position encoding that depends on the length would count padding.
    terms = getattr(position, "terms", ())
    schedules = (layer.attention.temperature for layer in layers)
    if any(getattr(term, "length_power", 0) for term in terms) or not all(
        isinstance(tau, ConstantTemperature | None)
        or getattr(tau, "of", "length") == "position"
        for tau in schedules
    ):
        raise InputError(
            f"padding = {padding}, and a temperature or position encoding goes with n, "
            "which would count it; leave the padding out, or what goes with n"
        )


def name_tensors(model: Transformer) -> Tensors:
    """Returns the model's tensors by their names in a file; a repeated layer's once."""
    named: dict[str, Any] = {"embedding": model.embedding}
    if isinstance(model.position, PositionTable):
        named["position"] = model.position.table
    if isinstance(model.position, PairTable):
        named["position.second"] = model.position.second
    for k, layer in enumerate(model.layers):
        if first_place(model, k) != k:
            continue
        attention = layer.attention
        for name in (
            "query key value output query_bias key_bias value_bias output_bias "
            "score_vector"
        ).split():
            named[f"layers.{k}.attention.{name}"] = getattr(attention, name)
        for name in NORMED:
            _name_norm(named, f"layers.{k}.attention.{name}", getattr(attention, name))
        distance = tensor_of(attention.distance_bias)
        named[f"layers.{k}.attention.distance_bias"] = distance
        for name in ("w1", "b1", "w2", "b2", "gate", "gate_bias"):
            named[f"layers.{k}.ffn.{name}"] = getattr(layer.feed_forward, name)
        for norm in ("norm1", "norm2"):
            _name_norm(named, f"layers.{k}.{norm}", getattr(layer, norm))
    _name_norm(named, "final_norm", model.final_norm)
    _name_readout(named, model.readout)
    if model.entry is not None:
        _name_norm(named, "entry.norm", model.entry.norm)
        named["entry.projection"] = model.entry.projection
        named["entry.projection_bias"] = model.entry.bias
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def _name_readout(named: dict[str, Any], readout: Readout | Head | None) -> None:
    if isinstance(readout, Readout):
        named |= {"readout.weight": readout.weight, "readout.bias": readout.bias}
    if not isinstance(readout, Head):
        return
    for at, operation in enumerate(readout.steps):
        if isinstance(operation, Norm):
            _name_norm(named, f"head.{at}", operation)
        elif isinstance(operation, Affine):
            named[f"head.{at}.weight"] = operation.weight
            named[f"head.{at}.bias"] = operation.bias
    if readout.tied or readout.bias is not None:  # else the reader refuses it
        named[f"head.{len(readout.steps)}.bias"] = readout.bias


def _name_norm(named: dict[str, Any], name: str, norm: Norm | None) -> None:
    if norm is not None:
        for tensor in norm.tensors():
            named[f"{name}.{tensor}"] = getattr(norm, tensor)
