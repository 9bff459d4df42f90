"""Random transformers, drawn with explicit JAX random keys for any `Architecture`."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Float, PRNGKeyArray, Shaped

from jax_models.arguments import (
    choose_name,
    choose_names,
    expect_integer,
    expect_kind,
    expect_number,
    refuse_unread,
    refusing_moved,
)
from jax_models.errors import InputError
from jax_models.format.model_check import check_model
from jax_models.jax_arguments import check_float_type, expect_key
from jax_models.model.attention import Attention, Schedule
from jax_models.model.layer import COMBINATIONS, NORM_PLACEMENTS, FeedForward, Layer
from jax_models.model.mask import MASKS
from jax_models.model.position import Coordinates, Position, PositionTable, Sinusoidal
from jax_models.model.pytree import array_fields
from jax_models.model.readout import Readout
from jax_models.model.relative import DistanceBias, Rotary
from jax_models.model.rows import ACTIVATIONS, NORMS, Norm
from jax_models.model.scores import SCORES
from jax_models.model.transformer import Transformer
from jax_models.run.device_memory import require_memory
from jax_models.weighting import WEIGHTINGS, make_weighting


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Architecture:
    """Norms, blocks, attention variants and read-out of a random transformer.

    Args:
        norm: which norm stands where `layer_norm` places one, one of `NORMS`.
        layer_norm_epsilon: added to the variance.
        activation: one of `ACTIVATIONS`.
        gated: whether the feed-forward blocks have a gate.
        combine: residual, parallel (with norms before or none) or concat (without norms).
        biases: whether attention has biases (the feed-forward block always has them).
        key_value_heads: how many heads have keys and values of their own, a divisor of
            the number of heads; groups of the others share them. None for all.
        query_key_norm: which norm queries and keys of every head have; None for none.
        distance_bias: added to scores by the distance; None for nothing.
        rotary: turns queries and keys by their positions; None for nothing.
        window: rows see positions that are less than this away; None for all.
        tie_resolution: width of a score cell of hard weightings.
        max_length: rows of a position table.
        final_norm: whether a norm follows the last layer.
        num_classes: classes of the read-out; None for no read-out.

    Raises:
        InputError: for an unknown name, a size below 1, a value of another type.
    """

    norm: str = "layer_norm"
    layer_norm_epsilon: float = 1e-5
    activation: str = "relu"
    gated: bool = False
    combine: str = "residual"
    biases: bool = True
    key_value_heads: int | None = None
    query_key_norm: str | None = None
    distance_bias: DistanceBias | None = None
    rotary: Rotary | None = None
    window: int | None = None
    tie_resolution: float | None = None
    max_length: int = 512
    final_norm: bool = False
    num_classes: int | None = None

    def __post_init__(self) -> None:
        expect_integer("max_length", self.max_length, 1)
        for name in ("num_classes", "window", "key_value_heads"):
            if getattr(self, name) is not None:
                expect_integer(name, getattr(self, name), 1)
        for name in ("final_norm", "biases", "gated"):
            expect_kind(name, getattr(self, name), bool | np.bool_, "True or False")
        bias = "an Alibi or DistanceBuckets, or None"
        expect_kind("distance_bias", self.distance_bias, DistanceBias | None, bias)
        expect_kind("rotary", self.rotary, Rotary | None, "a Rotary, or None")
        choose_name("norm", self.norm, NORMS)
        if self.query_key_norm is not None:
            choose_name("query_key_norm", self.query_key_norm, NORMS)
        choose_name("activation", self.activation, ACTIVATIONS)
        choose_name("combine", self.combine, COMBINATIONS)


PLAIN = Architecture()
# Numbers that `gaussian_numbers` draws for a smaller array; larger draws are exact.
DRAWN_AT_LEAST = 2**12
# Keywords of version 0.1.
MOVED = {
    field.name: f"architecture=jm.Architecture({field.name}=...)"
    for field in dataclasses.fields(Architecture)
}


@refusing_moved(MOVED)
def random_transformer(
    key: PRNGKeyArray,
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
    position: str | Sinusoidal | Coordinates | PositionTable | None = "sinusoidal",
    temperature: Schedule | float | None = None,
    scale: float = 1.0,
    architecture: Architecture = PLAIN,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns a transformer with Gaussian weights of deviation scale / sqrt(fan-in).

    Embedding rows have deviation `scale` per coordinate; biases, where present, are
    Gaussian of deviation 0.1 scale; norms' scales are 1 plus such numbers. Entries of a
    position table have deviation 1. The weights depend on the key and the shapes only, so
    models that differ in weighting, mask or temperature alone share them.

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
        position: none, sinusoidal, table, or a position encoding.
        temperature: a schedule for every layer; a number is a constant one, None 1.
        scale: of the weights' deviations, >= 0.
        architecture: norms, blocks, variants of attention, and the read-out.
        dtype: float32 or float64.

    Returns:
        The model.

    Raises:
        InputError: for an unknown name, sizes that do not fit, and numbers that give no
            model: a temperature that is not positive, a scale that is not finite.
    """
    parts = architecture
    expect_kind("architecture", parts, Architecture, "a jm.Architecture")
    check_float_type(dtype, "the model asked for")
    expect_integer("num_layers", num_layers, 0)
    sizes = {"num_heads": num_heads, "d_model": d_model, "d_ff": d_ff}
    for name, size in (sizes | {"vocab_size": vocab_size}).items():
        expect_integer(name, size, 1)
    scale = expect_number("scale", scale, 0)
    # No Gaussian number that is drawn is 16 or more.
    if 16 * scale >= jnp.finfo(dtype).max:
        name = jnp.dtype(dtype).name
        raise InputError(f"scale = {scale}; expected one that {name} can hold 16 of")
    # Refused before anything is drawn: queries, keys, values and output are d x d, the block
    # has maps of d_ff x d, wider where heads are concatenated, two where it has a gate.
    into = (1 + (parts.combine == "concat")) * (1 + parts.gated)
    per_layer = (4 * d_model + (1 + into) * d_ff) * d_model
    rows = vocab_size + (parts.num_classes or 0)
    rows += parts.max_length * (isinstance(position, str) and position == "table")
    needed = (num_layers * per_layer + rows * d_model) * jnp.dtype(dtype).itemsize
    require_memory("a model of these sizes", needed)
    if d_model % num_heads:
        raise InputError(
            f"num_heads = {num_heads} does not divide d_model = {d_model}; choose a "
            "divisor, so that every head has width d_model / num_heads"
        )
    choose_name("mask", mask, MASKS)
    choose_name("score", score, SCORES)
    choose_name("layer_norm", layer_norm, NORM_PLACEMENTS)
    names = _weighting_names(weighting, num_layers)
    if not any(WEIGHTINGS[name].hard for name in names):
        why = "no layer has hard attention"
        refuse_unread("tie_resolution", parts.tie_resolution, None, why)
    expect_key(key)
    ends, *layer_keys = _split(key, num_layers + 1)
    draw = _Draw(parts, d_model, scale, dtype)

    def layer(at: int) -> Layer:
        # More keys than the parts of a layer take one after another.
        keys = iter(_split(layer_keys[at], 16))
        weights = draw.attention(keys, num_heads, score, layer_keys[at])
        attention = Attention(
            **weights,
            weighting=make_weighting(
                names[at], parts.tie_resolution if WEIGHTINGS[names[at]].hard else None
            ),
            temperature=temperature,  # pyright: ignore[reportArgumentType]
            mask=mask,  # pyright: ignore[reportArgumentType]
            score=score,
            window=parts.window,
            rotary=parts.rotary,
        )
        feed_forward, norms = draw.feed_forward(keys, d_ff)
        norm1, norm2 = (None, None) if layer_norm == "none" else norms
        how: Any = layer_norm, parts.combine  # words that were checked
        return Layer(attention, feed_forward, norm1, norm2, *how)

    table, embedding, last, *out = _split(ends, 5)
    model = Transformer(
        embedding=gaussian_numbers(embedding, (vocab_size, d_model), dtype, scale),
        layers=tuple(map(layer, range(num_layers))),
        position=_position(table, position, (parts.max_length, d_model), dtype),
        final_norm=draw.norm(last) if parts.final_norm else None,
        readout=draw.readout(iter(out)),
    )
    return check_model(model)


def _weighting_names(weighting: Any, num_layers: int) -> list[str]:
    """Names of all layers' weightings, from one name or one per layer."""
    every = [weighting] * num_layers if isinstance(weighting, str) else weighting
    names = choose_names("weighting", every, WEIGHTINGS)
    if len(names) != num_layers:
        raise InputError(f"{len(names)} weightings for num_layers = {num_layers}")
    return names


def _position(key: PRNGKeyArray, kind: Any, shape: tuple[int, int], dtype: Any) -> Any:
    """Position encoding named or given by `kind`; a drawn table has `shape`."""
    names = ("none", "sinusoidal", "table")
    if kind is not None and not isinstance(kind, get_args(Position)):
        choose_name("position", kind, names)
    if isinstance(kind, Sinusoidal) or kind == "sinusoidal":
        encoding = kind if isinstance(kind, Sinusoidal) else Sinusoidal()
        encoding.encode(1, shape[1])  # refuses an odd width
        return encoding
    if isinstance(kind, str):
        table = kind == "table"
        return PositionTable(gaussian_numbers(key, shape, dtype)) if table else None
    return kind


@dataclasses.dataclass(frozen=True)
class _Draw:
    """Methods that draw Gaussian weights of the parts of an architecture."""

    # Models are reproducible by key: another use of the keys here gives other models.
    parts: Architecture
    d_model: int
    scale: float
    dtype: Any

    def tensors(
        self,
        kind: type,
        keys: Iterator[PRNGKeyArray],
        sizes: Mapping[str, int],
        names: Iterable[str],
    ) -> dict[str, Any]:
        """Random arrays by name for fields `names` of `kind`; `sizes` are axis lengths."""
        found = {}
        for name, key in zip(names, keys, strict=False):
            axes, _ = array_fields(kind)[name]
            shape = tuple(sizes[axis] for axis in axes.split())
            fan_in = 1 if name == "score_vector" else shape[-1]
            is_bias = name in ("b1", "b2") or name.endswith("bias")
            deviation = 0.1 * self.scale if is_bias else self.scale / fan_in**0.5
            found[name] = gaussian_numbers(key, shape, self.dtype, deviation)
        return found

    def norm(
        self, key: PRNGKeyArray, name: str | None = None, size: int | None = None
    ) -> Norm:
        """Random norm: its name (default `parts.norm`), and width of its rows (d_model)."""
        kind, shape = NORMS[name or self.parts.norm], (size or self.d_model,)
        keys = _split(key)[: len(array_fields(kind))]
        scale, *others = (
            gaussian_numbers(key, shape, self.dtype, 0.1 * self.scale) for key in keys
        )
        return kind(1 + scale, *others, self.parts.layer_norm_epsilon)

    def attention(
        self, keys: Any, num_heads: int, score: str, layer_key: PRNGKeyArray
    ) -> dict[str, Any]:
        """Random weights of an attention sublayer, by field names of `Attention`."""
        parts, width = self.parts, self.d_model // num_heads
        sizes = {"heads": num_heads, "key_heads": parts.key_value_heads or num_heads}
        sizes |= dict.fromkeys(("width", "concatenated"), self.d_model)
        sizes |= dict.fromkeys(("d_k", "d_v"), width)
        # All take their keys even where they are dropped below: the other weights are those
        # of the architecture that has them.
        found = self.tensors(Attention, keys, sizes, array_fields(Attention))
        if not parts.biases:
            found |= {name: None for name in found if name.endswith("bias")}
        if parts.combine == "concat":
            found |= {"output": None, "output_bias": None}
        if not SCORES[score].takes_vector:
            found["score_vector"] = None
        if parts.query_key_norm is not None:
            of_heads = _split(jax.random.fold_in(layer_key, 1))
            for name, key in zip(("query_norm", "key_norm"), of_heads, strict=True):
                found[name] = self.norm(key, parts.query_key_norm, width)
        found["distance_bias"] = jax.tree.map(
            lambda x: jnp.asarray(x, self.dtype), parts.distance_bias
        )
        return found

    def feed_forward(self, keys: Any, d_ff: int) -> tuple[FeedForward, list[Norm]]:
        """Random feed-forward block, and the two random norms of a layer."""
        parts, d_model = self.parts, self.d_model
        read = d_model * (1 + (parts.combine == "concat"))
        sizes = {"d_ff": d_ff, "read": read, "width": d_model}
        found = self.tensors(FeedForward, keys, sizes, ("w1", "b1", "w2", "b2"))
        norms = [self.norm(next(keys)), self.norm(next(keys))]
        if parts.gated:
            own = iter(_split(next(keys)))
            found |= self.tensors(FeedForward, own, sizes, ("gate", "gate_bias"))
        return FeedForward(**found, activation=parts.activation), norms

    def readout(self, keys: Iterator[PRNGKeyArray]) -> Readout | None:
        """Random map of final activations to the classes; None without classes."""
        if self.parts.num_classes is None:
            return None
        sizes = {"width": self.d_model, "classes": self.parts.num_classes}
        return Readout(**self.tensors(Readout, keys, sizes, ("weight", "bias")))


def init_transformer(key: PRNGKeyArray, **options: Any) -> Transformer:
    """Returns a transformer initialised for training.

    As `random_transformer`, with the values that training begins from: biases zero,
    layer-norm scales one, embedding rows of norm about `scale`, which is 1 by default.

    Args:
        key: a JAX random key.
        **options: as in `random_transformer`.

    Returns:
        The model.

    Raises:
        InputError: as in `random_transformer`.
    """
    model = random_transformer(key, **options)

    def settle(path: Any, leaf: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        name = jax.tree_util.keystr(path)
        if ".norm" in name or "_norm." in name:
            return jnp.ones_like(leaf) if name.endswith("scale") else leaf * 0
        # Slopes and tables of a bias of the distance are given, not drawn.
        if name.endswith(("bias", ".b1", ".b2")):
            return jnp.zeros_like(leaf)
        if name.endswith(".embedding"):
            # d numbers of deviation `scale` have a norm near scale sqrt(d).
            return leaf / model.width**0.5
        return leaf

    return jax.tree_util.tree_map_with_path(settle, model)


@functools.partial(jax.jit, static_argnums=1)
def _split(key: PRNGKeyArray, count: int = 2) -> tuple[PRNGKeyArray, ...]:
    """Random keys of `jax.random.split` as a tuple, by one compiled program."""
    return tuple(jax.random.split(key, count))


def gaussian_numbers(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any, deviation: float = 1.0
) -> Float[Array, "..."]:
    """`jax.random.normal` times `deviation`; small shapes share compiled programs."""
    size = math.prod(map(int, shape))
    if size > DRAWN_AT_LEAST:
        return jax.random.normal(key, shape, dtype) * deviation
    # The numbers are those of `jax.random.normal` of the shape: with JAX's default,
    # partitionable generator a number depends only on the key and its index. As many are
    # drawn at a time for all shapes, and NumPy makes arrays of them: programs of JAX for it
    # take a process that draws one small model a second to compile.
    numbers = jax.random.normal(key, (DRAWN_AT_LEAST,), dtype)
    if isinstance(numbers, Tracer):
        return numbers[:size].reshape(shape) * deviation
    return jax.device_put(np.asarray(numbers)[:size].reshape(shape) * deviation)
