"""Models from the config and tensors of a file, and the tensors of a model by name.

The config is a JSON object that states all of a model but its tensors. The entry of a model
is the norm and projection between embedding and layers; its head maps the last layer's rows
to logits. A repeated layer stands at several places with one set of weights.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_keys,
    expect_number,
    not_finite_at,
    show,
)
from jax_models.errors import InputError, errors_of
from jax_models.format.config import NORMED, decode_config, first_place
from jax_models.format.pieces import DISTANCES, EMBEDDING, LINEAR, read_kind
from jax_models.jax_arguments import check_float_type
from jax_models.model.attention import Attention
from jax_models.model.entry import Entry
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.position import PairTable, Position, PositionTable
from jax_models.model.pytree import array_fields
from jax_models.model.readout import Head, Readout
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Norm
from jax_models.model.scores import SCORES
from jax_models.model.transformer import Transformer
from jax_models.weighting import make_weighting

Tensors = dict[str, Any]  # arrays of NumPy or JAX by their names in a file


class _Reader:
    """Tensors of a file, taken by name and checked; `left` holds those not taken."""

    def __init__(self, tensors: Tensors) -> None:
        self.left = dict(tensors)

    def take(
        self,
        name: str,
        axes: str,
        # sizes of axes; those of axes that it lacks are added, any >= 1
        sizes: dict[str, int],
    ) -> Float[Array, "..."]:
        """Required tensor as a JAX array, checked for shape and finite numbers."""
        names = axes.split()
        shape = [sizes.get(axis, axis) for axis in names]
        if name not in self.left:
            raise InputError(
                f"tensor {name!r} is missing; expected shape {_show(shape)}"
            )
        # What is left in the end belongs to no part of the config, and is refused.
        found = self.left.pop(name)
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
        sizes.update(zip(names, found.shape, strict=True))
        return jnp.asarray(found)

    def take_part(
        self,
        kind: type,
        # of the tensors' names, before those of the fields
        name: str,
        sizes: dict[str, int],
        # fields whose tensors may not be missing or, with False, are not taken
        **needed: bool,
    ) -> dict[str, Float[Array, "..."] | None]:
        """Tensors of the array fields of class `kind`, by field; None for an absent one."""
        return {
            field: self.take(f"{name}.{field}", axes, sizes)
            if needed.get(field, not optional) or f"{name}.{field}" in self.left
            else None
            for field, (axes, optional) in array_fields(kind).items()
            if needed.get(field, True)
        }


def _show(shape: list[int | str]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _norm(reader: _Reader, name: str, width: int, entry: dict[str, Any]) -> Norm:
    kind = NORMS[entry["norm"]]
    tensors = reader.take_part(kind, name, {"width": width})
    return kind(*tensors.values(), entry["layer_norm_epsilon"])


def _norm_if_there(
    reader: _Reader, name: str, width: int, entry: dict[str, Any]
) -> Norm | None:
    there = any(f"{name}.{field}" in reader.left for field in ("scale", "bias"))
    return _norm(reader, name, width, entry) if there else None


def _layer(reader: _Reader, at: int, entry: dict[str, Any], d: int) -> Layer:
    name, sizes = f"layers.{at}.attention", {"width": d}
    query = reader.take(f"{name}.query", "heads d_k width", sizes)
    heads, key_width = query.shape[:2]
    groups = sizes["key_heads"] = entry["key_value_heads"] or heads
    if heads % groups:
        raise InputError(
            f"layers[{at}].key_value_heads = {groups}; expected a divisor of the "
            f"{heads} heads"
        )
    value = reader.take(f"{name}.value", "key_heads d_v width", sizes)
    joined = sizes["concatenated"] = heads * sizes["d_v"]
    concat = entry["combine"] == "concat"
    rotary = entry["rotary"]
    if rotary is not None and rotary.dims > key_width:
        raise InputError(
            f"layers[{at}].rotary.dims = {rotary.dims}; expected at most d_k = {key_width}"
        )
    norms_of_heads: dict[str, Any] = {
        norm: _norm(reader, f"{name}.{norm}", key_width, entry[norm])
        for norm in NORMED
        if entry[norm] is not None
    }
    distance = entry["distance_bias"]
    if distance is not None:
        where = f"layers[{at}].distance_bias"
        kind, options = read_kind(where, distance, DISTANCES)
        ((axes, _),) = array_fields(kind).values()
        tensor = reader.take(f"{name}.distance_bias", axes, sizes)
        with errors_of(f"layers[{at}]"):
            distance = kind(tensor, **options)
        distance.biases(jnp.zeros(1, int), jnp.zeros(1, int), 1)  # refuses bad buckets
    weights: dict[str, Any] = reader.take_part(
        Attention,
        name,
        sizes,
        query=False,
        value=False,
        output=not concat,
        score_vector=SCORES[entry["score"]].takes_vector,
        **({"output_bias": False} if concat else {}),
    )
    attention = Attention(
        **{"output": None} | weights | norms_of_heads,
        **{x: entry[x] for x in ("temperature", "mask", "score", "window", "rotary")},
        query=query,
        value=value,
        weighting=make_weighting(entry["weighting"], entry["tie_resolution"]),
        distance_bias=distance,
    )
    name, sizes = f"layers.{at}.ffn", {"width": d, "read": d + joined * concat}
    block: dict[str, Any] = reader.take_part(FeedForward, name, sizes)
    # A bias of a gate that is not there: taking the gate raises that it is missing.
    if block["gate"] is None and block["gate_bias"] is not None:
        reader.take(f"{name}.gate", "d_ff read", sizes)
    # `norm2` has no entry: it stands in every layer that has norms.
    norms = {
        norm: _norm(reader, f"layers.{at}.{norm}", d, entry)
        for norm in ("norm1", "norm2")
        if entry["layer_norm"] != "none" and entry.get(norm, True)
    }
    return Layer(
        attention,
        FeedForward(**block, activation=entry["activation"]),
        **norms,
        layer_norm=entry["layer_norm"],
        combine=entry["combine"],
    )


def _entry(reader: _Reader, width: int, config: dict[str, Any]) -> Entry | None:
    norm = _norm_if_there(reader, "entry.norm", width, config)
    found: dict[str, Any] = {}
    if "entry.projection" in reader.left:
        found = reader.take_part(Entry, "entry", {"d_embedding": width})
    return Entry(norm, **found) if norm or found else None


def _head(
    reader: _Reader,
    entry: Any,
    # width of the head's input rows
    width: int,
    embedding: Float[Array, "symbols d_embedding"],
) -> Head:
    if not isinstance(entry, list) or not entry:
        raise InputError(f"head = {show(entry)}; expected a list of its operations")
    steps, tied, bias = [], False, None
    for at, one in enumerate(entry):
        name, where = f"head.{at}", f"head[{at}]"
        if isinstance(one, dict):
            expect_keys(where, one, ["norm", "epsilon"])
            said = {
                "norm": choose_name(f"{where}.norm", one.get("norm"), NORMS),
                "layer_norm_epsilon": expect_number(
                    f"{where}.epsilon", one.get("epsilon"), 0
                ),
            }
            steps.append(_norm(reader, name, width, said))
        elif choose_name(where, one, (LINEAR, EMBEDDING, *ACTIVATIONS)) == LINEAR:
            found: dict[str, Any] = reader.take_part(Affine, name, {"read": width})
            steps.append(Affine(**found))
            width = steps[-1].weight.shape[0]
        elif one != EMBEDDING:
            steps.append(ACTIVATIONS[one])
        elif at != len(entry) - 1:
            raise InputError(f"{where} = {one!r} comes last, or not at all")
        elif embedding.shape[1] != width:
            raise InputError(
                f"{where} = {one!r} reads rows of width {embedding.shape[1]}; what comes "
                f"before it has width {width}"
            )
        else:
            tied, sizes = True, {"symbols": embedding.shape[0]}
            bias = reader.take_part(Head, name, sizes)["bias"]
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
        check_float_type(str(tensor.dtype), f"tensor {name!r}")
    kinds = sorted({str(tensor.dtype) for tensor in tensors.values()})
    if len(kinds) > 1:
        raise InputError(f"tensors mix the types {kinds}; expected one of them")
    reader = _Reader(tensors)
    embedding = reader.take("embedding", "V d", {})
    width = embedding.shape[1]
    entering = _entry(reader, width, config)
    projection = entering and entering.projection
    d = width if projection is None else projection.shape[0]
    position = _position(reader, config["position"], width)
    layers: list[Layer] = []
    for k, entry in enumerate(config["layers"]):
        same = entry.get("same_as")
        # The same object: its weights are there once, in memory and for derivatives.
        layers.append(_layer(reader, k, entry, d) if same is None else layers[same])
    final_norm, readout = _norm_if_there(reader, "final_norm", d, config), None
    if config["head"] is not None:
        readout = _head(reader, config["head"], d, embedding)
    elif "readout.weight" in tensors:
        found: dict[str, Any] = reader.take_part(Readout, "readout", {"width": d})
        readout = Readout(**found)
    if reader.left:
        raise InputError(
            f"unexpected tensors {sorted(reader.left)}; the config describes "
            f"{len(layers)} layers and names nothing that they belong to"
        )
    names = (
        *("accept", "vocabulary", "substitutable", "token_dropout", "pooling"),
        *("padding", "head_row", "special"),
    )
    model = Transformer(
        embedding,
        tuple(layers),
        position,
        final_norm,
        readout,
        entry=entering,
        **{name: config[name] for name in names},
    )
    _check_ends(model)
    return model


def _check_ends(model: Transformer) -> None:
    """Raises `InputError` unless symbols, accepted class and head row fit the model."""
    symbols, substitutable = range(model.vocab_size), model.substitutable
    classes = model.classes or 0
    if (accept := model.accept) is not None and accept.class_ >= classes:
        raise InputError(
            f"accept.class = {accept.class_}; the read-out has {classes} classes"
        )
    if model.head_row is not None and model.readout is None:
        raise InputError(
            f"head_row = {model.head_row!r}, and the model has no head to be of it"
        )
    others = set(symbols).difference(substitutable or symbols)
    named = [("substitutable lists", symbol) for symbol in substitutable or ()]
    if (dropout := model.token_dropout) is not None:
        named.append(("token_dropout.mask =", dropout.mask))
    if isinstance(model.position, PairTable):
        named.append(("position.separator =", model.position.separator))
    if (padding := model.padding) is not None:
        named.append(("padding =", padding.symbol))
        others.discard(padding.symbol)
    for what, symbol in named:
        if symbol not in symbols:
            raise InputError(f"{what} {symbol}; symbols are 0 to {symbols[-1]}")
    names = model.vocabulary
    if names is not None and len(names) != len(symbols):
        raise InputError(
            f"vocabulary has {len(names)} names; the embedding has {len(symbols)} symbols"
        )
    listed = symbols if substitutable is None else substitutable
    if padding is not None and padding.symbol in listed:
        raise InputError(
            f"padding = {padding.symbol}, which is no token to put in; expected "
            "`substitutable` to list the others"
        )
    if not others.issuperset(model.special or ()):
        raise InputError(
            f"special = {show(list(model.special or ()))}; expected symbols of the model "
            "that are neither substitutable nor padding"
        )
    if padding is None:
        return
    # A temperature or position encoding that depends on the length would count padding.
    terms = getattr(model.position, "terms", ())
    schedules = (layer.attention.temperature for layer in model.layers)
    if any(getattr(term, "length_power", 0) for term in terms) or any(
        tau is not None and tau.depends_on_length for tau in schedules
    ):
        raise InputError(
            f"padding = {padding.symbol}, and a temperature or position encoding goes with "
            "n, which would count it; leave the padding out, or what goes with n"
        )


def _position(reader: _Reader, said: Any, width: int) -> Position | None:
    """Position encoding: a table, or the config's formula `said`; None without both.

    For a table that adds a row behind a separator, `said` is {"separator": symbol}.
    """
    if isinstance(said, dict):
        symbol = expect_integer("position.separator", said["separator"], 0)
        table = reader.take("position", "n_max d", {"d": width})
        second = reader.take("position.second", "d", {"d": width})
        return PairTable(table, second, symbol)
    if "position" not in reader.left:
        return said
    if said is not None:
        raise InputError(
            "the file has a tensor 'position' and config.position names a formula; "
            "expected one of the two"
        )
    return PositionTable(reader.take("position", "n_max d", {"d": width}))


def name_tensors(model: Transformer) -> Tensors:
    """Returns the model's tensors by name in a file; those of a repeated layer once."""
    named: dict[str, Any] = {"embedding": model.embedding}
    # By what the names of their tensors begin with.
    parts: dict[str, Any] = {"final_norm": model.final_norm, "entry": model.entry}
    parts["entry.norm"] = model.entry and model.entry.norm
    if isinstance(model.position, PositionTable):
        named["position"] = model.position.table
    if isinstance(model.position, PairTable):
        named["position.second"] = model.position.second
    for k, layer in enumerate(model.layers):
        if first_place(model, k) != k:
            continue
        name, attention = f"layers.{k}", layer.attention
        parts[f"{name}.attention"] = attention
        for norm in NORMED:
            parts[f"{name}.attention.{norm}"] = getattr(attention, norm)
        if (bias := attention.distance_bias) is not None:
            (tensor,) = array_fields(type(bias))
            named[f"{name}.attention.distance_bias"] = getattr(bias, tensor)
        parts[f"{name}.ffn"] = layer.feed_forward
        parts |= {f"{name}.norm1": layer.norm1, f"{name}.norm2": layer.norm2}
    if isinstance(readout := model.readout, Readout):
        parts["readout"] = readout
    elif readout is not None:
        parts |= {f"head.{at}": step for at, step in enumerate(readout.steps)}
        if readout.tied or readout.bias is not None:  # else the reader refuses it
            named[f"head.{len(readout.steps)}.bias"] = readout.bias
    for name, part in parts.items():
        for field in array_fields(type(part)):
            named[f"{name}.{field}"] = getattr(part, field)
    return {name: tensor for name, tensor in named.items() if tensor is not None}
