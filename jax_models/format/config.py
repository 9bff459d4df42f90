"""The JSON config of a model file, all of a model but its tensors: decoded and encoded.

docs/model-format.md, sections 4 and 5, lists the keys and their defaults. A key of a layer's
entry wins over the same key at the top level, where values that all layers share are written.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection
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
    check_distance,
    decode_head,
    decode_position,
    decode_rotary,
    decode_temperature,
    encode_distance,
    encode_head,
    encode_position,
    encode_rotary,
    encode_temperature,
    norm_word,
)
from jax_models.model.entry import Padding, TokenDropout
from jax_models.model.layer import COMBINATIONS, NORM_PLACEMENTS
from jax_models.model.mask import MASKS
from jax_models.model.readout import Accept, Pooling
from jax_models.model.rows import ACTIVATIONS, NORMS, Norm
from jax_models.model.scores import SCORES
from jax_models.model.transformer import Transformer
from jax_models.weighting import WEIGHTINGS

# Norms of one head's queries and keys, with entries and tensors of these names.
NORMED = ("query_norm", "key_norm")
FORMATS = ("attention-bounds/1", "attention-bounds/2")
# Limits of version 1 of the format, which is written if it can hold the model: hashes of
# files are keys of results. By key, the values that it has; name endings of tensors that it
# lacks, and of tensors that it requires in every layer.
VERSION_1: dict[str, tuple[Any, ...]] = {
    "norm": ("layer_norm",),
    "activation": ("relu", "gelu"),
    "combine": ("residual", "concat"),
    "norm1": (True,),
    **dict.fromkeys(("key_value_heads", "head", "rotary", "same_as"), (None,)),
    **dict.fromkeys(
        (
            *("window", "distance_bias", "token_dropout", "pooling", "padding"),
            *("head_row", "special", *NORMED),
        ),
        (None,),
    ),
}
NOT_IN_1 = (
    "ffn.gate",
    "ffn.gate_bias",
    "entry.norm.scale",
    "entry.projection",
    "position.second",
)
ALWAYS_IN_1 = ("ffn.b1", "ffn.b2")
HEAD_ROWS = ("first", "last")
# Keys that stand in layers' entries if layers differ, else at the top level; defaults.
SAID_ONCE = {
    "combine": "residual",
    "tie_resolution": None,
    "rotary": None,
    "window": None,
    "distance_bias": None,
    **dict.fromkeys(NORMED),
}
TOP_KEYS = [
    *"format norm layer_norm layer_norm_epsilon activation layers vocabulary special".split(),
    *"substitutable position accept head head_row token_dropout pooling padding".split(),
    *SAID_ONCE,
]
LAYER_KEYS = [
    *"weighting mask score temperature key_value_heads norm1".split(),
    *SAID_ONCE,
]
# Keys that a file has once for all layers, with defaults; a model has them in each layer.
DEFAULTS = {
    "norm": "layer_norm",
    "layer_norm": "none",
    "layer_norm_epsilon": 1e-5,
    "activation": "relu",
}


def decode_config(
    config: Any,
    # names of the file's tensors; None checks none of them
    names: Collection[str] | None = None,
    *,
    # whether the config is from `describe_model`: its layers may have the keys of `DEFAULTS`
    described: bool = False,
) -> dict[str, Any]:
    """Returns the checked config with defaults, entries such as `accept` as objects.

    A layer that repeats an earlier one stays {"same_as": index of that one}.
    """
    expect_keys("config", config, TOP_KEYS)
    if config.get("format") not in FORMATS:
        raise InputError(
            f"config.format = {show(config.get('format'))}; this version reads "
            f"{' and '.join(map(repr, FORMATS))}"
        )
    checked = dict(config) | decode_shared("", config, DEFAULTS)
    layers: Any = config.get("layers")
    expect_kind("config.layers", layers, list, "a list of layers")
    # In memory layers may differ in what a file says once for all of them.
    allowed = [*LAYER_KEYS, *(DEFAULTS if described else ())]
    checked["layers"] = [
        _decode_repeat(k, layers)
        if isinstance(entry, dict) and "same_as" in entry
        else _decode_layer(
            f"layers[{k}]", expect_keys(f"layers[{k}]", entry, allowed), checked
        )
        for k, entry in enumerate(layers)
    ]
    newer = _newer(checked, names) if config["format"] == FORMATS[0] else None
    if newer is not None:
        raise InputError(
            f"{newer}, which {FORMATS[0]!r} does not have; write {FORMATS[1]!r} as format"
        )
    for name, kind in (("vocabulary", str), ("substitutable", int), ("special", int)):
        entry = config.get(name)
        listed = isinstance(entry, list) and all(type(item) is kind for item in entry)
        if entry is not None and not listed:
            raise InputError(
                f"{name} = {show(entry)}; expected a list of {kind.__name__}"
            )
        if entry == [] and name == "substitutable":
            raise InputError("substitutable = []; list symbols, or leave it out")
        if entry and (most := Counter(entry).most_common(1)[0])[1] > 1:
            raise InputError(f"{name} lists {most[0]!r} {most[1]} times; expected once")
    checked["head"] = decode_head(config.get("head"))
    if (head_row := config.get("head_row")) is not None:
        choose_name("head_row", head_row, HEAD_ROWS)
    checked["position"] = decode_position(config.get("position"))
    dropout = config.get("token_dropout")
    if dropout is not None:
        expect_keys("token_dropout", dropout, ["mask", "share"])
        checked["token_dropout"] = TokenDropout(
            dropout.get("mask"), dropout.get("share")
        )
    if (pooling := config.get("pooling")) is not None:
        expect_keys("pooling", pooling, ["kind", "normalised"])
        checked["pooling"] = Pooling(**pooling)
    if (padding := config.get("padding")) is not None:
        checked["padding"] = Padding(padding)
    accept = config.get("accept")
    if accept is not None:
        expect_keys("accept", accept, ["class", "threshold"])
        checked["accept"] = Accept(
            expect_integer("accept.class", accept.get("class"), 0),
            expect_number("accept.threshold", accept.get("threshold")),
        )
    return checked


def _newer(config: dict[str, Any], names: Collection[str] | None) -> str | None:
    """Words for the first feature of a config that version 1 cannot hold, or None."""
    for entry in (config, *config["layers"]):
        for name, words in VERSION_1.items():
            if entry.get(name, words[0]) not in words:
                return f"{name} = {entry[name]!r}"
    if names is None:
        return None
    for name in sorted(names):
        if name.endswith(NOT_IN_1):
            return f"tensor {name!r}"
    for k in range(len(config["layers"])):
        for name in (f"layers.{k}.{end}" for end in ALWAYS_IN_1):
            if name not in names:
                return f"a layer whose tensor {name!r} is missing"
    return None


def _norms_alone(model: Transformer) -> list[Norm]:
    """Norms between embedding and layers, and after the last layer, if any."""
    found = [model.entry and model.entry.norm, model.final_norm]
    return [norm for norm in found if norm is not None]


def _decode_norm(where: str, entry: Any) -> dict[str, Any] | None:
    """Checked entry of a norm of queries or keys, with defaults; None if there is none."""
    if entry is None:
        return None
    expect_keys(where, entry, ["norm", "layer_norm_epsilon"])
    names = ("norm", "layer_norm_epsilon")
    found = {name: entry.get(name, DEFAULTS[name]) for name in names}
    choose_name(f"{where}.norm", found["norm"], tuple(NORMS))
    expect_number(f"{where}.layer_norm_epsilon", found["layer_norm_epsilon"], 0)
    return found


def _encode_norm(norm: Norm | None) -> dict[str, Any] | None:
    if norm is None:
        return None
    return {"norm": norm_word(norm), "layer_norm_epsilon": norm.epsilon}


def decode_shared(
    where: str,
    # config entry of the file or of a layer
    entry: dict[str, Any],
    # values of keys that `entry` lacks
    top: dict[str, Any],
) -> dict[str, Any]:
    """Values of the keys of `DEFAULTS`, from `entry`, else from `top`, checked."""
    found = {key: entry.get(key, top[key]) for key in DEFAULTS}
    choose_name(f"{where}norm", found["norm"], tuple(NORMS))
    choose_name(f"{where}layer_norm", found["layer_norm"], NORM_PLACEMENTS)
    choose_name(f"{where}activation", found["activation"], tuple(ACTIVATIONS))
    expect_number(f"{where}layer_norm_epsilon", found["layer_norm_epsilon"], 0)
    return found


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


def _decode_layer(where: str, entry: Any, top: dict[str, Any]) -> dict[str, Any]:
    shared = decode_shared(f"{where}.", entry, top)
    entry = {name: top.get(name, x) for name, x in SAID_ONCE.items()} | entry
    mask = choose_name(f"{where}.mask", entry.get("mask", "none"), MASKS)
    combine = choose_name(f"{where}.combine", entry["combine"], COMBINATIONS)
    placements = {"concat": ("none",), "parallel": ("none", "pre")}
    allowed = placements.get(combine, NORM_PLACEMENTS)
    if shared["layer_norm"] not in allowed:
        raise InputError(
            f"{where}.combine = {combine!r} goes only with layer_norm "
            f"{' or '.join(map(repr, allowed))}, found {shared['layer_norm']!r}"
        )
    if (resolution := entry["tie_resolution"]) is not None:
        resolution = expect_number(f"{where}.tie_resolution", resolution, 0, above=True)
    weighting = choose_name(
        f"{where}.weighting", entry.get("weighting"), tuple(WEIGHTINGS)
    )
    score = entry.get("score", "scaled_dot_product")
    numbers = {name: entry.get(name) for name in ("window", "key_value_heads")}
    for name, number in numbers.items():
        if number is not None:
            expect_integer(f"{where}.{name}", number, 1)
    has_norm1 = entry.get("norm1", True)
    expect_kind(f"{where}.norm1", has_norm1, bool, "true or false")
    if not has_norm1 and shared["layer_norm"] != "pre":
        raise InputError(
            f"{where}.norm1 = false goes only with layer_norm 'pre', found "
            f"{shared['layer_norm']!r}"
        )
    return {
        "weighting": weighting,
        "norm1": has_norm1,
        "mask": mask,
        "score": choose_name(f"{where}.score", score, tuple(SCORES)),
        "temperature": decode_temperature(
            f"{where}.temperature", entry.get("temperature"), mask
        ),
        "combine": combine,
        # One that stands at the top is of the hard layers alone.
        "tie_resolution": resolution if WEIGHTINGS[weighting].hard else None,
        **numbers,
        **{name: _decode_norm(f"{where}.{name}", entry[name]) for name in NORMED},
        "distance_bias": check_distance(
            f"{where}.distance_bias", entry["distance_bias"]
        ),
        "rotary": decode_rotary(f"{where}.rotary", entry["rotary"], score),
        **shared,
    }


def describe_model(model: Transformer, names: Collection[str]) -> dict[str, Any]:
    """Returns a model's config, with the keys of `DEFAULTS` in each layer's entry.

    `names` are those of the model's tensors, and decide the version of the format.
    """
    config: dict[str, Any] = {"layers": []}
    for k, layer in enumerate(model.layers):
        attention, first = layer.attention, first_place(model, k)
        # A repeated layer is said by the index of its first place, and its tensors stand
        # once.
        if first != k:
            config["layers"].append({"same_as": first})
            continue
        entry = {
            "weighting": attention.weighting.name,
            "mask": attention.mask,
            "score": attention.score,
            "temperature": encode_temperature(attention.temperature),
            "combine": layer.combine,
            "tie_resolution": getattr(attention.weighting, "tie_resolution", None),
            "layer_norm": layer.layer_norm,
            "activation": layer.feed_forward.activation,
            "rotary": encode_rotary(attention.rotary),
            "window": attention.window,
            **{name: _encode_norm(getattr(attention, name)) for name in NORMED},
            "distance_bias": encode_distance(attention.distance_bias),
        }
        # Shapes are not checked yet: a key without axes must not fail here.
        groups = attention.key.shape[:1]
        if groups and groups != attention.query.shape[:1]:
            entry["key_value_heads"] = groups[0]
        if layer.layer_norm == "pre" and layer.norm1 is None:
            entry["norm1"] = False
        # `norm2` stands in every layer that has norms, `norm1` may be missing.
        if layer.norm2 is not None:
            entry["norm"] = norm_word(layer.norm2)
            entry["layer_norm_epsilon"] = layer.norm2.epsilon
        config["layers"].append(entry)
    for norm in _norms_alone(model):
        config["norm"] = norm_word(norm)
        config["layer_norm_epsilon"] = norm.epsilon
    dropout, accept = model.token_dropout, model.accept
    lists = ("vocabulary", "substitutable", "special")
    others = {
        "head": encode_head(model.readout),
        "head_row": model.head_row,
        "token_dropout": dropout and {"mask": dropout.mask, "share": dropout.share},
        "pooling": model.pooling and dataclasses.asdict(model.pooling),
        "padding": model.padding and model.padding.symbol,
        "position": encode_position(model.position),
        "accept": accept and {"class": accept.class_, "threshold": accept.threshold},
        **{x: y if (y := getattr(model, x)) is None else list(y) for x in lists},
    }
    config |= {name: entry for name, entry in others.items() if entry is not None}
    # Version 1 wherever it can hold the model: such files keep their bytes, and so their
    # keys.
    config["format"] = FORMATS[_newer(config, names) is not None]
    return config


def first_place(model: Transformer, at: int) -> int:
    """Returns the first index of the layer at index `at`, as a layer may repeat."""
    layers = model.layers
    return next(k for k in range(at + 1) if layers[k] is layers[at])


def encode_config(model: Transformer, names: Collection[str]) -> dict[str, Any]:
    """Returns the config for a model's file; layers must agree in keys of `DEFAULTS`."""
    config = describe_model(model, names)
    layers = [entry for entry in config["layers"] if "same_as" not in entry]
    norms = [norm for layer in model.layers for norm in (layer.norm1, layer.norm2)]
    there = [norm for norm in (*norms, *_norms_alone(model)) if norm is not None]
    for name in DEFAULTS:
        values = {entry.pop(name, None) for entry in layers}
        if name == "layer_norm_epsilon":
            values = {norm.epsilon for norm in there}
        elif name == "norm":
            values = {norm_word(norm) for norm in there}
        if len(values) > 1:
            raise InputError(
                f"the file format holds one {name} for all layers, the model has "
                f"{sorted(values)}"
            )
        config[name] = values.pop() if values else DEFAULTS[name]
    # As files were written before other norms existed, byte for byte.
    if config["norm"] == DEFAULTS["norm"]:
        del config["norm"]
    for name, default in SAID_ONCE.items():
        values = [entry[name] for entry in layers]
        # Alike in all layers: once at the top, or not at all where it is the default.
        if all(value == values[0] for value in values):
            for entry in layers:
                del entry[name]
            if values and values[0] != default:
                config[name] = values[0]
    return config
