"""Models and questions made to break radii, beside those of `benchmarks.radii_families`.

Each is drawn by seed and has few rows, so that mpmath can tell the truth in float64; those in
`LONG` are of single precision alone, and float64 tells it. Shapes as there: two heads, d = 6.
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
from benchmarks.radii_families import BUILT, DRAWN, LENGTH, SIZES, Config
from bounds.influence.build import TableOptions, build_request
from bounds.influence.request import InfluenceRequest
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.table.layout import Kind, Reading
from bounds.influence.table.reductions import Reduce
from jax_models.model.relative import Alibi, Rotary

# Of inputs long enough that sums over keys round.
FAR = 64
# As the published weights have it.
SHARPNESS = 1 / np.sqrt(5)
CLASSES = jm.Architecture(num_classes=4)
GELU = jm.Architecture(activation="gelu")
SILU = jm.Architecture(activation="silu", norm="rms_norm")
Draw = np.random.Generator
# From a config and draws to the question.
Ask = Callable[[Config, Draw], InfluenceRequest]


def _random(config: Config, **options: Any) -> jm.Transformer:
    shape = {"position": "sinusoidal", "num_layers": 2, **SIZES, **options}
    key = jax.random.key(1000 + config["drawn"])
    return jm.random_transformer(key, dtype=config["dtype"], **shape)


def _tokens(draw: Draw, model: jm.Transformer, length: int = LENGTH) -> np.ndarray:
    return draw.integers(0, model.vocab_size, length)


def _exponent(config: Config, draw: Draw, single: float, double: float) -> float:
    """A number 10^x with x uniform from 1 to `single` or `double`, by the float type."""
    most = single if config["dtype"] == "float32" else double
    return float(10.0 ** draw.uniform(1, most))


def with_attention(model: jm.Transformer, depth: int, **fields: Any) -> jm.Transformer:
    """Model with fields of the attention of layer `depth` replaced."""
    layers = list(model.layers)
    attention = dataclasses.replace(layers[depth].attention, **fields)
    layers[depth] = dataclasses.replace(layers[depth], attention=attention)
    return dataclasses.replace(model, layers=tuple(layers))


def oppose_heads(model: jm.Transformer, share: float) -> jm.Transformer:
    """Model whose first layer's second head cancels the first, except for a share."""
    own: Any = model.layers[0].attention
    fields = {
        name: getattr(own, name).at[1].set(getattr(own, name)[0])
        for name in ("query", "key", "value", "query_bias", "key_bias", "value_bias")
    }
    half = own.output.shape[1] // 2
    output = own.output.at[:, half:].set(-(1 - share) * own.output[:, :half])
    return with_attention(model, 0, **fields, output=output)


def look_at_row(model: jm.Transformer, row: int, length: int) -> jm.Transformer:
    """Model whose last layer's queries see one row only, by a coordinate of positions."""
    last = model.width - 1
    table = 0.3 * jax.random.normal(jax.random.key(row), (length, model.width))
    table = table.astype(model.dtype).at[:, last].set(0).at[row, last].set(1)
    own: Any = model.layers[-1].attention
    model = with_attention(
        model,
        -1,
        query=jnp.zeros_like(own.query),
        query_bias=jnp.zeros_like(own.query_bias).at[:, 0].set(1),
        key=jnp.zeros_like(own.key).at[:, 0, last].set(120.0),
    )
    layers = []
    for layer in model.layers[:-1]:  # nothing else is written there
        block: Any = layer.feed_forward
        block = dataclasses.replace(
            block, w2=block.w2.at[last].set(0), b2=block.b2.at[last].set(0)
        )
        own = layer.attention
        own = dataclasses.replace(
            own,
            output=own.output.at[last].set(0),
            output_bias=own.output_bias.at[last].set(0),
        )
        layers.append(dataclasses.replace(layer, attention=own, feed_forward=block))
    embedding = model.embedding.at[:, last].set(0)
    return dataclasses.replace(
        model,
        embedding=embedding,
        position=jm.PositionTable(table),
        layers=(*layers, model.layers[-1]),
    )


def opposed_heads(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request with opposed heads in the first layer; the last layer sees one row."""
    model = look_at_row(_random(config), int(draw.integers(length - 1)), length)
    share = 1 / _exponent(config, draw, 6, 14)
    return build_request(oppose_heads(model, share), _tokens(draw, model, length))


def opposed_logit(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request as of `opposed_heads`, with one logit as the target."""
    model = look_at_row(
        _random(config, architecture=jm.Architecture(num_classes=1)),
        int(draw.integers(length - 1)),
        length,
    )
    share = 1 / _exponent(config, draw, 6, 14)
    tokens = _tokens(draw, model, length)
    return build_request(oppose_heads(model, share), tokens, target="logits")


def drift(config: Config, draw: Draw, length: int) -> InfluenceRequest:
    """Request with opposed heads that average all keys: long sums of similar numbers."""
    model = _random(config, d_model=4)
    own: Any = model.layers[0].attention
    nothing = {
        name: jnp.zeros_like(getattr(own, name)) for name in ("query", "query_bias")
    }
    model = oppose_heads(with_attention(model, 0, **nothing), 1e-3)
    tokens = _tokens(draw, model, length)
    positions = sorted(draw.choice(length - 1, 16, replace=False).tolist())
    return build_request(model, tokens, positions=positions)


def equal_weights(config: Config, draw: Draw) -> InfluenceRequest:
    """Request with uniform heads that cancel all but the last digits of a change."""
    model = _random(config, num_layers=1, position=None)
    own: Any = model.layers[0].attention
    nothing = {
        name: jnp.zeros_like(getattr(own, name)) for name in ("query", "query_bias")
    }
    value = jnp.ones_like(own.value)
    model = with_attention(model, 0, **nothing, value=value)
    share = 1 / _exponent(config, draw, 6, 14)
    rows = model.embedding - model.embedding.mean(axis=1, keepdims=True)
    rows = rows.at[:, 0].add(share * jnp.arange(len(rows), dtype=model.dtype))
    model = dataclasses.replace(model, embedding=rows.astype(model.dtype))
    return build_request(model, _tokens(draw, model))


def sink(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request in which position 0 takes nearly all weight and adds nearly nothing."""
    model = _random(config)
    last = model.width - 1
    table = jnp.zeros((length, model.width), model.dtype).at[0, last].set(1)
    shuffled = jnp.asarray(draw.permutation(length) / length, model.dtype)
    table = table.at[:, 0].set(shuffled)
    most = 12.0 if config["dtype"] == "float32" else 30.0
    for depth in range(len(model.layers)):
        own: Any = model.layers[depth].attention
        model = with_attention(
            model,
            depth,
            query_bias=own.query_bias.at[:, 0].set(1),
            key=own.key.at[:, 0, last].set(float(draw.uniform(5, most))),
            value=own.value.at[:, :, last].set(0),
        )
    model = dataclasses.replace(model, position=jm.PositionTable(table))
    return build_request(model, _tokens(draw, model, length))


def nearly_equal(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request with two symbols whose embeddings differ in their last digits."""
    model = _random(config, num_layers=config["layers"])
    apart = 1 / _exponent(config, draw, 6, 13)
    other = model.embedding[0] * (1 + apart * jnp.sign(model.embedding[2]))
    model = dataclasses.replace(model, embedding=model.embedding.at[1].set(other))
    return build_request(model, draw.integers(0, 2, length))


def large(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request with embeddings scaled by 10 to 10^6 (10^3 in float32): large scores."""
    model = _random(config, num_layers=config["layers"], scale=1.0)
    size = _exponent(config, draw, 3, 6)
    model = dataclasses.replace(model, embedding=model.embedding * size)
    return build_request(model, _tokens(draw, model, length))


def cancels(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request whose positions cancel a symbol's embedding, except for last digits."""
    model = _random(config)
    size = _exponent(config, draw, 5, 12)
    rows = -size * model.embedding[0] + jnp.asarray(
        0.1 * draw.standard_normal((length, model.width)), model.dtype
    )
    embedding = (model.embedding * 0.1 + size * model.embedding[0]).astype(model.dtype)
    model = dataclasses.replace(
        model, embedding=embedding, position=jm.PositionTable(rows)
    )
    return build_request(model, _tokens(draw, model, length))


def norm_offset(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request with an offset of all coordinates, which the layer norm removes."""
    norm = ("pre", "post")[config["drawn"] % 2]
    model = _random(config, layer_norm=norm)
    size = _exponent(config, draw, 4, 10)
    model = dataclasses.replace(model, embedding=model.embedding + size)
    return build_request(model, _tokens(draw, model, length))


def row_offset(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request whose one seen row has scores with a large common offset."""
    row = int(draw.integers(length - 1))
    model = look_at_row(_random(config), row, length)
    last, own = model.width - 1, model.layers[0].attention
    size = _exponent(config, draw, 4, 10)
    query: Any = own.query
    bias: Any = own.key_bias
    key: Any = own.key
    model = with_attention(
        model,
        0,
        query=query.at[:, 0, last].set(size),
        key=key.at[:, 0].set(0),
        key_bias=bias.at[:, 0].set(1),
    )
    return build_request(model, _tokens(draw, model, length))


def left_out(config: Config, draw: Draw) -> InfluenceRequest:
    """Request with underflow beside large values, without the dominant column's position."""
    model, tokens = DRAWN["underflow"]({**config, "layers": 2}, draw)
    single = config["dtype"] == "float32"
    first: Any = model.layers[0].attention
    model = with_attention(model, 0, value=first.value * (1e5 if single else 1e12))
    tokens[1:] = np.where(tokens[1:] == 0, 1, tokens[1:])
    tokens[0] = 0
    return build_request(model, tokens, positions=range(1, LENGTH))


def _features(dtype: str) -> list[dict[str, Any]]:
    """Options of models, one feature each."""
    slopes = jnp.asarray([0.5, 0.0625], dtype)
    return [
        {"temperature": jm.InverseLogTemperature(0.7)},
        {"temperature": jm.PowerTemperature(0.9, -0.5, "position"), "mask": "future"},
        {
            "architecture": jm.Architecture(distance_bias=Alibi(slopes)),
            "mask": "future",
        },
        {"architecture": jm.Architecture(rotary=Rotary(2))},
        {"architecture": jm.Architecture(window=3), "mask": "future"},
        {"score": "additive"},
        {"architecture": dataclasses.replace(SILU, gated=True), "layer_norm": "pre"},
        {"architecture": jm.Architecture(combine="concat")},
        {"architecture": GELU, "layer_norm": "post"},
        {
            "architecture": jm.Architecture(activation="tanh", final_norm=True),
            "layer_norm": "pre",
        },
        {"architecture": jm.Architecture(query_key_norm="rms_norm")},
        {"weighting": "average_hard"},
        {"weighting": "leftmost_hard"},
        {"weighting": ("rightmost_hard", "softmax")},
        {"weighting": ("softmax", "average_hard")},
    ]


def features(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request of a model with one feature: temperature, bias, rotary, window, block, ..."""
    every = _features(config["dtype"])
    model = _random(config, **every[config["drawn"] % len(every)])
    return build_request(model, _tokens(draw, model, length))


DEEP: tuple[dict[str, Any], ...] = (
    {"layer_norm": "pre", "architecture": GELU},
    {"layer_norm": "post", "architecture": GELU},
    {"layer_norm": "pre", "architecture": SILU},
    {"layer_norm": "none"},
    {"layer_norm": "pre", "weighting": "average_hard"},
)


def deep(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request of a model of four to six layers, pre-norm, post-norm or without norm."""
    which = config["drawn"]
    model = _random(config, num_layers=4 + which % 3, **DEEP[which % len(DEEP)])
    return build_request(model, _tokens(draw, model, length))


def peaked(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request of a model with scores of tens, in one to three layers."""
    temperature = jm.ConstantTemperature(float(10.0 ** draw.uniform(-2, 0)))
    options = {"num_layers": config["layers"], "temperature": temperature}
    model = _random(config, **options)
    return build_request(model, _tokens(draw, model, length))


READ: tuple[Kind, ...] = ("signed", "largest", "norm")


def every_row(config: Config, draw: Draw, length: int = LENGTH) -> InfluenceRequest:
    """Request of all rows' logits: signed, the largest, or their norm."""
    kind = READ[config["drawn"] % len(READ)]
    model = _random(config, num_layers=config["layers"], architecture=CLASSES)
    request = build_request(
        model, _tokens(draw, model, length), target="logits", include_query=True
    )
    watched = tuple(range(length))
    return dataclasses.replace(request, watched=watched, reading=Reading(kind))


MAPS: tuple[Reduce, ...] = (
    None,
    "none",
    "max",
    "mean",
    Frobenius(center=False, apc=False),
    Frobenius(center=True, apc=True),
    Frobenius(symmetrize="map"),
    Frobenius(symmetrize="tensor"),
)


def maps(config: Config, draw: Draw) -> InfluenceRequest:
    """Request of a scan of all rows' logits, with one reduction of `MAPS`."""
    model = _random(config, num_layers=config["layers"], architecture=CLASSES)
    reduce = MAPS[config["drawn"] % len(MAPS)]
    table = TableOptions(rows="all", reduce=reduce)
    return build_request(model, _tokens(draw, model), target="logits", table=table)


def parity(config: Config, draw: Draw, length: int, bits: str) -> InfluenceRequest:
    """Request of the published PARITY transformer on random, constant or alternating bits."""
    values = {
        "random": draw.integers(0, 2, length),
        "constant": np.ones(length, int),
        "alternating": np.arange(length) % 2,
    }[bits]
    model = published_parity(SHARPNESS, config["dtype"])
    positions = sorted(draw.choice(length, 16, replace=False).tolist())
    tokens = np.append(values, 2)
    return build_request(model, tokens, positions=positions, target="logits")


def _family(name: str) -> Ask:
    def ask(config: Config, draw: Draw) -> InfluenceRequest:
        return build_request(*{**DRAWN, **BUILT}[name](config, draw))

    return ask


# Families of several kinds, of which the number that was drawn says which.
KINDS = {"deep": len(DEEP), "maps": len(MAPS), "every row": len(READ)}
KINDS["features"] = len(_features("float32"))
# With one layer and two, or two and three; the others have the layers they have.
LAYERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(DRAWN, (1, 2)),
    **dict.fromkeys(("nearly equal", "large", "scores of tens"), (1, 2, 3)),
    **dict.fromkeys(("every row", "maps"), (1, 2, 3)),
}
SMALL: dict[str, Ask] = {
    **{name: _family(name) for name in (*DRAWN, *BUILT)},
    "opposed heads": opposed_heads,
    "opposed heads (logit)": opposed_logit,
    "equal weights": equal_weights,
    "sink": sink,
    "nearly equal": nearly_equal,
    "large": large,
    "scores of tens": peaked,
    "positions cancel": cancels,
    "norm offset": norm_offset,
    "row offset": row_offset,
    "underflow (left out)": left_out,
    "features": features,
    "deep": deep,
    "every row": every_row,
}
PARITY: dict[str, Ask] = {
    f"published parity ({n} {bits} bits)": functools.partial(
        parity, length=n, bits=bits
    )
    for n in (100, 1000, 10000)
    for bits in ("random", "constant", "alternating")
}
# What a scan makes of tables; and inputs that are longer: of single precision alone, beside
# float64.
SCANS = {"maps": maps}
_LONGER: dict[str, Any] = {
    name: SMALL[name]
    for name in ("opposed heads", "opposed heads (logit)", "sink", "row offset")
}
LONG: dict[str, Ask] = {
    f"{name} (n = {FAR})": functools.partial(ask, length=FAR)
    for name, ask in _LONGER.items()
} | {f"drift (n = {n})": functools.partial(drift, length=n) for n in (512, 2048, 8192)}
