"""The JSON config of a model file, all of a model but its tensors: decoded and encoded.

docs/model-format.md, sections 4 and 5, lists the keys and their defaults. A key of a layer's
entry, its object in the list `layers`, wins over the same key at the top level, where
values that all layers share (keys in `SHARED`) are written.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_keys,
    expect_kind,
    expect_number,
    show,
)
from jax_models.errors import InputError
from jax_models.format.pieces import (
    EMBEDDING,
    LINEAR,
    decode_position,
    decode_rotary,
    decode_temperature,
    encode_temperature,
    read_part,
    word_of,
    write_part,
)
from jax_models.model.entry import Padding, TokenDropout
from jax_models.model.layer import COMBINATIONS, NORM_PLACEMENTS, Layer
from jax_models.model.mask import MASKS, SIGHTS
from jax_models.model.readout import Accept, Head, Pooling
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Norm
from jax_models.model.scores import SCORES
from jax_models.model.transformer import Transformer
from jax_models.weighting import WEIGHTINGS

FORMATS = ("attention-bounds/1", "attention-bounds/2")


@dataclasses.dataclass(frozen=True)
class Key:
    """Key of a config: reader of its value, and the attribute of a model that it holds."""

    # From its words in messages, and an entry; `build_model` reads those left as they are.
    read: Callable[[str, Any], Any]
    path: str = ""  # attributes that lead to the part, from a layer or the model
    default: Any = None  # None: the part may be absent
    # Values in version 1 of the format, which is written if it can hold the model: hashes
    # of files are keys of results. None allows all.
    old: tuple[Any, ...] | None = None
    encode: Callable[[Any], Any] = write_part
    required: bool = False


NEW = (None,)  # `Key.old` of a key that version 1 does not have


def _word(names: Collection[str]) -> Callable[[str, Any], str]:
    return lambda where, entry: choose_name(where, entry, names)


def _count(where: str, entry: Any) -> int:
    return expect_integer(where, entry, 1)


def _positive(where: str, entry: Any) -> float:
    return expect_number(where, entry, 0, above=True)


def _boolean(where: str, entry: Any) -> bool:
    expect_kind(where, entry, bool, "true or false")
    return entry


def _decode_norm(where: str, entry: Any) -> dict[str, Any]:
    keys = {name: SHARED[name] for name in ("norm", "layer_norm_epsilon")}
    return _decode(f"{where}.", expect_keys(where, entry, list(keys)), keys)


def _encode_norm(norm: Norm) -> dict[str, Any]:
    return {"norm": norm_word(norm), "layer_norm_epsilon": norm.epsilon}


def _list(kind: type) -> Callable[[str, Any], tuple[Any, ...]]:
    def read(where: str, entry: Any) -> tuple[Any, ...]:
        if not isinstance(entry, list) or any(type(item) is not kind for item in entry):
            raise InputError(
                f"{where} = {show(entry)}; expected a list of {kind.__name__}"
            )
        if entry == [] and where == "substitutable":
            raise InputError("substitutable = []; list symbols, or leave it out")
        for item, count in Counter(entry).most_common(1):
            if count > 1:
                raise InputError(f"{where} lists {item!r} {count} times; expected once")
        return tuple(entry)

    return read


def _as_it_is(where: str, entry: Any) -> Any:
    return entry


def norm_word(norm: Norm) -> str:
    """Name of a norm in files; the class's name if files have none for it."""
    return word_of(NORMS, norm)


def _encode_head(readout: Any) -> list[Any] | None:
    """Config entry of a `Head`; None for a `Readout`."""
    if not isinstance(readout, Head):
        return None
    entry: list[Any] = []
    for operation in readout.steps:
        if isinstance(operation, Norm):
            entry.append({"norm": norm_word(operation), "epsilon": operation.epsilon})
        elif isinstance(operation, Affine):
            entry.append(LINEAR)
        else:
            # As for norms: an unknown operation is named, and refused when it is decoded.
            words = (word for word, one in ACTIVATIONS.items() if one == operation)
            entry.append(next(words, type(operation).__name__))
    return [*entry, EMBEDDING] if readout.tied else entry


# Keys that a file has once for all layers; a model has them in each layer.
SHARED = {
    # `norm2` stands in every layer that has norms, `norm1` may be missing.
    "norm": Key(_word(NORMS), "norm2", "layer_norm", ("layer_norm",), norm_word),
    "layer_norm": Key(_word(NORM_PLACEMENTS), "layer_norm", "none"),
    "layer_norm_epsilon": Key(
        lambda where, entry: expect_number(where, entry, 0), "norm2.epsilon", 1e-5
    ),
    "activation": Key(
        _word(ACTIVATIONS), "feed_forward.activation", "relu", ("relu", "gelu")
    ),
}
# Keys of a layer's entry alone.
OWN = {
    "weighting": Key(_word(WEIGHTINGS), "attention.weighting.name", required=True),
    "mask": Key(_word(MASKS), "attention.mask", "none"),
    "score": Key(_word(SCORES), "attention.score", "scaled_dot_product"),
    "temperature": Key(
        decode_temperature, "attention.temperature", encode=encode_temperature
    ),
    "key_value_heads": Key(_count, old=NEW),
    "norm1": Key(_boolean, default=True, old=(True,)),
}
# Norms of one head's queries and keys, with entries and tensors of these names.
NORMED = ("query_norm", "key_norm")
# Keys that stand in layers' entries if layers differ, else at the top level.
ONCE = {
    "combine": Key(_word(COMBINATIONS), "combine", "residual", ("residual", "concat")),
    "tie_resolution": Key(_positive, "attention.weighting.tie_resolution"),
    "rotary": Key(decode_rotary, "attention.rotary", old=NEW),
    "window": Key(_count, "attention.window", None, NEW),
    **{
        name: Key(_decode_norm, f"attention.{name}", None, NEW, _encode_norm)
        for name in NORMED
    },
    "distance_bias": Key(_as_it_is, "attention.distance_bias", old=NEW),
}
# Keys of a model.
TOP = {
    "vocabulary": Key(_list(str), "vocabulary"),
    "substitutable": Key(_list(int), "substitutable"),
    "special": Key(_list(int), "special", old=NEW),
    "head": Key(_as_it_is, "readout", None, NEW, _encode_head),
    "head_row": Key(_word(("first", "last")), "head_row", old=NEW),
    # A position table is a tensor alone.
    "position": Key(
        decode_position, "position", encode=lambda part: write_part(part) or None
    ),
    "token_dropout": Key(read_part(TokenDropout), "token_dropout", old=NEW),
    "pooling": Key(read_part(Pooling), "pooling", old=NEW),
    "padding": Key(lambda where, entry: Padding(entry), "padding.symbol", old=NEW),
    "accept": Key(read_part(Accept), "accept"),
}
LAYER = SHARED | OWN | ONCE
VERSION_1 = {"same_as": NEW} | {
    name: key.old for name, key in (LAYER | TOP).items() if key.old is not None
}
# Name endings of tensors that version 1 lacks, and that it requires in every layer.
NOT_IN_1 = (
    "ffn.gate",
    "ffn.gate_bias",
    "entry.norm.scale",
    "entry.projection",
    "position.second",
)
ALWAYS_IN_1 = ("ffn.b1", "ffn.b2")


def decode_config(
    config: Any,
    # names of the file's tensors
    names: Collection[str],
    *,
    # whether the config is from `describe_model`: its layers may have the keys of `SHARED`
    described: bool = False,
) -> dict[str, Any]:
    """Returns the checked config with defaults, entries such as `accept` as objects.

    A layer that repeats an earlier one stays {"same_as": index of that one}.
    """
    expect_keys("config", config, ["format", "layers", *SHARED, *ONCE, *TOP])
    if config.get("format") not in FORMATS:
        raise InputError(
            f"config.format = {show(config.get('format'))}; this version reads "
            f"{' and '.join(map(repr, FORMATS))}"
        )
    layers: Any = config.get("layers")
    expect_kind("config.layers", layers, list, "a list of layers")
    checked = _decode("", config, SHARED)
    # In memory layers may differ in what a file says once for all of them.
    allowed = [*OWN, *ONCE, *(SHARED if described else ())]
    checked["layers"] = [
        _decode_repeat(k, layers)
        if isinstance(entry, dict) and "same_as" in entry
        else _decode_layer(
            f"layers[{k}]", expect_keys(f"layers[{k}]", entry, allowed), config
        )
        for k, entry in enumerate(layers)
    ]
    newer = _newer(config | checked, names) if config["format"] == FORMATS[0] else None
    if newer is not None:
        raise InputError(
            f"{newer}, which {FORMATS[0]!r} does not have; write {FORMATS[1]!r} as format"
        )
    return checked | _decode("", config, TOP)


def _decode(
    # words for the entry in messages, before a key
    where: str,
    entry: Mapping[str, Any],
    keys: Mapping[str, Key],
    # values of keys that `entry` lacks
    top: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Checked values of `keys` in an entry; else those of the top level, or defaults."""
    said: dict[str, Any] = {}
    for name, key in keys.items():
        given = entry.get(name, top.get(name, key.default))
        absent = given is None and key.default is None and not key.required
        said[name] = None if absent else key.read(f"{where}{name}", given)
    return said


def _decode_layer(where: str, entry: Any, top: Mapping[str, Any]) -> dict[str, Any]:
    """Checked config of a layer with its own weights; refuses values that clash."""
    said = _decode(f"{where}.", entry, LAYER, top)
    combine, norm, score = said["combine"], said["layer_norm"], said["score"]
    allowed = {"concat": ("none",), "parallel": ("none", "pre")}.get(combine)
    if allowed is not None and norm not in allowed:
        raise InputError(
            f"{where}.combine = {combine!r} goes only with layer_norm "
            f"{' or '.join(map(repr, allowed))}, found {norm!r}"
        )
    if not said["norm1"] and norm != "pre":
        raise InputError(
            f"{where}.norm1 = false goes only with layer_norm 'pre', found {norm!r}"
        )
    of_position = getattr(said["temperature"], "of", None) == "position"
    if of_position and SIGHTS[said["mask"]].after:
        raise InputError(
            f'{where}.temperature.of = "position" needs a future mask, the layer has '
            f"{said['mask']!r}"
        )
    # A rotation makes inner products depend on the distance; an additive score has none.
    if said["rotary"] is not None and not SCORES[score].bilinear:
        raise InputError(
            f"{where}.rotary goes only with dot-product scores, found {score!r}"
        )
    # A resolution at the top is of the hard layers alone.
    if not WEIGHTINGS[said["weighting"]].hard:
        said["tie_resolution"] = None
    return said


def _newer(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """First feature of a config that version 1 of the format lacks, in words; or None."""
    for entry in (config, *config["layers"]):
        for name, words in VERSION_1.items():
            if entry.get(name, words[0]) not in words:
                return f"{name} = {entry[name]!r}"
    for name in sorted(names):
        if name.endswith(NOT_IN_1):
            return f"tensor {name!r}"
    for k in range(len(config["layers"])):
        for name in (f"layers.{k}.{end}" for end in ALWAYS_IN_1):
            if name not in names:
                return f"a layer whose tensor {name!r} is missing"
    return None


def _norms_alone(model: Transformer) -> list[Norm]:
    """Norms of a model outside its layers: after the embedding, after the last layer."""
    found = [model.entry and model.entry.norm, model.final_norm]
    return [norm for norm in found if norm is not None]


def _decode_repeat(at: int, layers: list[Any]) -> dict[str, Any]:
    """Checked entry of a layer that repeats an earlier one: {"same_as": its index}."""
    where, entry = f"layers[{at}]", layers[at]
    expect_keys(where, entry, ["same_as"])
    of = expect_integer(f"{where}.same_as", entry["same_as"], 0)
    if of >= at or (isinstance(layers[of], dict) and "same_as" in layers[of]):
        raise InputError(
            f"{where}.same_as = {of}; expected an earlier layer that has its own weights"
        )
    return {"same_as": of}


def _encode(part: Any, keys: Mapping[str, Key]) -> dict[str, Any]:
    """Config values of a layer or a model by key; absent attributes are left out."""
    found: dict[str, Any] = {}
    for name, key in keys.items():
        value = part if key.path else None
        for attribute in key.path.split("."):
            value = getattr(value, attribute, None)
        if value is not None and (entry := key.encode(value)) is not None:
            found[name] = entry
    return found


def _describe_layer(layer: Layer) -> dict[str, Any]:
    # Files have always said that there is no temperature.
    entry = {"temperature": None} | _encode(layer, LAYER)
    # Shapes are not checked yet: a key without axes must not fail here.
    groups, heads = (x.shape[:1] for x in (layer.attention.key, layer.attention.query))
    if groups and groups != heads:
        entry["key_value_heads"] = groups[0]
    if layer.layer_norm == "pre" and layer.norm1 is None:
        entry["norm1"] = False
    return entry


def describe_model(model: Transformer, names: Collection[str]) -> dict[str, Any]:
    """Returns a model's config, with the keys of `SHARED` in each layer's entry.

    `names` are those of the model's tensors, and decide the version of the format.
    """
    # A repeated layer is said by the index of its first place, and its tensors stand once.
    firsts = [first_place(model, k) for k in range(len(model.layers))]
    config = _encode(model, TOP)
    config["layers"] = [
        _describe_layer(model.layers[k]) if first == k else {"same_as": first}
        for k, first in enumerate(firsts)
    ]
    for norm in _norms_alone(model):
        config |= _encode_norm(norm)
    # Version 1 wherever it can hold the model: such files keep their bytes, and so their
    # keys.
    config["format"] = FORMATS[_newer(config, names) is not None]
    return config


def first_place(model: Transformer, at: int) -> int:
    """Returns the first index of the layer at index `at`, as a layer may repeat."""
    layers = model.layers
    return next(k for k in range(at + 1) if layers[k] is layers[at])


def encode_config(model: Transformer, names: Collection[str]) -> dict[str, Any]:
    """Returns the config for a model's file; layers must agree in keys of `SHARED`."""
    config = describe_model(model, names)
    layers = [entry for entry in config["layers"] if "same_as" not in entry]
    norms = [norm for layer in model.layers for norm in (layer.norm1, layer.norm2)]
    there = [norm for norm in (*norms, *_norms_alone(model)) if norm is not None]
    held = {name: {entry.pop(name, None) for entry in layers} for name in SHARED}
    held["norm"] = {norm_word(norm) for norm in there}
    held["layer_norm_epsilon"] = {norm.epsilon for norm in there}
    for name, values in held.items():
        if len(values) > 1:
            raise InputError(
                f"the file format holds one {name} for all layers, the model has "
                f"{sorted(values)}"
            )
        config[name] = values.pop() if values else SHARED[name].default
    # As files were written before other norms existed, byte for byte.
    if config["norm"] == SHARED["norm"].default:
        del config["norm"]
    for name, key in ONCE.items():
        values = [entry.pop(name, key.default) for entry in layers]
        if any(value != values[0] for value in values):
            for entry, value in zip(layers, values, strict=True):
                entry[name] = value
        # Alike in all layers: once at the top, or not at all where it is the default.
        elif values and values[0] != key.default:
            config[name] = values[0]
    return config
