"""Errors of the influences of two-layer softmax models, against many digits.

Families of models that lose digits (`benchmarks.two_layer_errors`): the influences of all
substitutions on the last row by `incremental`, beside passes of the multiprecision reference
(`benchmarks.reference`), which shares no line with it. A row has two errors of a model, in
units of the float type's unit roundoff: the largest |found - exact| / exact, and the largest
|found - exact| over the largest influence. Influences below the smallest normal number of
the type count for the second alone.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import jax_models as jm
from benchmarks.exact_values import exact_values
from benchmarks.flags import (
    benchmark_flags,
    define_choices,
    define_dtypes,
    define_integers,
    define_masks,
)
from benchmarks.page import digits, table_text
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
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from bounds.influence.build import build_request
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.moved import found_by
from bounds.numbers.rounding import unit_roundoff
from jax_models.model.transformer import apply_layer, embedded

# Widest window of the family that has one.
WINDOW = 5
Draw = np.random.Generator
# From a model, its input [n] and draws to the changed model.
Build = Callable[[jm.Transformer, np.ndarray, Draw], jm.Transformer]


@dataclasses.dataclass(frozen=True)
class Family:
    """Models of one kind, made by changing random models.

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
        """Returns a model of the family and an input, drawn by the config's seed."""
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
    """Function of model, input and draws that applies a change without the input."""
    return lambda model, tokens, draw: change(model, draw)


def _sharpen(factor: float, *layers: int) -> Build:
    """Function that multiplies the queries of some layers by a factor."""

    def build(model: jm.Transformer, tokens: np.ndarray, draw: Draw) -> jm.Transformer:
        for depth in layers:
            own: Any = model.layers[depth].attention
            bias = own.query_bias * factor
            query = own.query * factor
            model = with_attention(model, depth, query=query, query_bias=bias)
        return model

    return build


def _arriving(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Model in which symbol 0 has score 5, and others 0 and -95, or -95 only."""
    scores = [5.0, 0.0, -95.0] if model.vocab_size > 2 else [5.0, -95.0]
    seen = jnp.asarray(scores, model.dtype)
    embedding = model.embedding.at[:, 0].set(seen)
    model = dataclasses.replace(model, embedding=embedding)
    return look_by_one_coordinate(model, 1.0)


def _opposed(model: jm.Transformer, tokens: np.ndarray, draw: Draw) -> jm.Transformer:
    """Model whose first layer's heads cancel but for a small share; layer 2 sees one row."""
    share = 1e-3 if model.dtype == jnp.float32 else 1e-8
    model = look_at_row(model, len(tokens) - 2, len(tokens))
    return oppose_heads(model, share)


def _offset_values(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Model whose values share 10^3 (10^6 in float64), which the bias removes."""
    size = 1e3 if model.dtype == jnp.float32 else 1e6
    for depth in range(2):
        own: Any = model.layers[depth].attention
        bias = own.value_bias + size
        taken = own.output_bias - own.output @ bias.ravel()
        model = with_attention(model, depth, value_bias=bias, output_bias=taken)
    return model


def _scale_embedding(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Model with its embeddings times 20."""
    return dataclasses.replace(model, embedding=20 * model.embedding)


def _with_block(model: jm.Transformer, **fields: Any) -> jm.Transformer:
    """Model with fields of the first layer's feed-forward block replaced."""
    first, *others = model.layers
    block: Any = first.feed_forward
    first = dataclasses.replace(
        first, feed_forward=dataclasses.replace(block, **fields)
    )
    return dataclasses.replace(model, layers=(first, *others))


def first_neurons(model: jm.Transformer, tokens: np.ndarray) -> jax.Array:
    """Neurons of the first layer before their activation, [n, d_ff]."""
    layer: Any = model.layers[0]

    def hidden(layer: Any, rows: jax.Array, heads: jax.Array) -> jax.Array:
        own, block = layer.attention, layer.feed_forward
        return (rows + heads @ own.output.T + own.output_bias) @ block.w1.T + block.b1

    return apply_layer(layer, embedded(model, jnp.asarray(tokens)), combine=hidden)[0]


def _kinks_exact(model: jm.Transformer, draw: Draw) -> jm.Transformer:
    """Model whose first layer's neurons are exactly 0 unless the input has symbol 0.

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
    """Model in which each neuron of the first layer is 0 at one row, up to rounding."""
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


# Of the reference: the smallest normal number with 20 digits and more beside 1.
DIGITS = {"float32": 80, "float64": 340}
# Numbers of symbols of a family's models, in turn.
VOCAB_SIZES = (3, 2)
ERRORS = ("relative", "of_largest")
# In units of u; of families that stay below it the table has one row.
SHOWN = 1000
OTHERS = "all others"
FLAGS = benchmark_flags("two_layer_errors", table=True)
CHOSEN = define_choices(FLAGS, "families", list(FAMILIES), list(FAMILIES), "families")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
MASKS = define_masks(FLAGS, "none", "future")
LENGTHS = define_integers(FLAGS, "lengths", [20], "lengths n", lower_bound=2)
MODELS = flags.DEFINE_integer(
    "models", 2, "models of each family", lower_bound=1, flag_values=FLAGS
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields models of families by length, float type and mask."""
    axes = grid(
        n=LENGTHS.value,
        dtype=DTYPES.value,
        mask=MASKS.value,
        drawn=range(MODELS.value),
        family=CHOSEN.value,
    )
    for cell in axes:
        if cell["mask"] in FAMILIES[cell["family"]].masks:
            sizes = VOCAB_SIZES[cell["drawn"] % len(VOCAB_SIZES)]
            yield {**cell, "vocab_size": sizes}


def errors(found: np.ndarray, exact: np.ndarray, dtype: str) -> dict[str, float]:
    """Largest errors in units of the unit roundoff: relative, and over the largest value."""
    unit, normal = unit_roundoff(dtype), exact >= float(jnp.finfo(dtype).tiny)
    with np.errstate(invalid="ignore"):  # of NaN the largest error is NaN
        off = abs(found - exact)
        relative = (off[normal] / exact[normal]).astype(np.float64)
        of_largest = (off / exact.max()).astype(np.float64)
    return {
        "relative": float(relative.max()) / unit,
        "of_largest": float(of_largest.max()) / unit,
    }


def measure(config: Config) -> dict[str, Any]:
    """Row of one model: the largest errors of its influences."""
    request = build_request(*FAMILIES[config["family"]].draw(config))
    exact = exact_values(request, DIGITS[config["dtype"]])
    return errors(found_by(INCREMENTAL, request), exact, config["dtype"])


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    names = ("family", "dtype", "mask", "n", "vocab_size")
    found = f"{row['relative']:.3g} u, {row['of_largest']:.3g} u of the largest"
    return f"{' '.join(str(config[name]) for name in names)}: {found}"


def table(measured: Measured) -> str:
    """Largest errors of families, in units of the unit roundoff, as a Markdown table.

    Families without an error above `SHOWN` share the last row.
    """
    large = {
        config["family"]
        for config, row in measured
        if not all(row[name] <= SHOWN for name in ERRORS)
    }
    found: dict[Any, float] = {}
    for config, row in measured:
        family = config["family"] if config["family"] in large else OTHERS
        for name in ERRORS:
            at = family, config["dtype"], config["mask"], name
            # Of NaN the largest is NaN, which Python's own maximum may miss.
            found[at] = float(np.maximum(row[name], found.get(at, 0.0)))
    columns = list(dict.fromkeys(key[1:] for key in found))
    head = ["family"]
    head += [f"{t}, {m}: {name.replace('_', ' ')}" for t, m, name in columns]
    lines = []
    for family in sorted(dict.fromkeys(key[0] for key in found), key=OTHERS.__eq__):
        shown = [digits(found.get((family, *column))) for column in columns]
        lines.append([family, *shown])
    return table_text(head, lines)


BENCHMARK = Benchmark("two_layer_errors", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
