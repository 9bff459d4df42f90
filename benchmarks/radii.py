"""Do the radii hold where rounding is hardest?

Families of models made to lose digits, drawn by seed: every substitution of an input, by all
exact methods, beside the same by rerunning in mpmath (`benchmarks.reference`). A row is one
model: how many pairs (model, substitution), how many of them outside what the method states,
and the largest error as a share of the radius. `--seeds=170` is 10^5 pairs.

The families have the tensors of one shape, so that they share a compiled program.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import jax_models as jm
from benchmarks.accuracy import METHODS, computed, exact_influences
from benchmarks.flags import benchmark_flags, define_choices, define_dtypes
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from bounds.influence.base import Problem
from bounds.influence.substitution import list_substitutions

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 6, "d_ff": 8, "vocab_size": 4}
LENGTH = 8
# Beside a dominant column e^-gap is what a float type holds no more.
UNDERFLOW = {"float32": (87.0, 105.0), "float64": (708.0, 744.0)}

Change = Callable[[jm.Transformer, np.random.Generator], jm.Transformer]


def _attention(model: jm.Transformer, change: Callable[[Any], Any]) -> jm.Transformer:
    """The model with the attention of every layer changed."""
    layers = tuple(
        dataclasses.replace(layer, attention=change(layer.attention))
        for layer in model.layers
    )
    return dataclasses.replace(model, layers=layers)


def _peaked(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """Scores of tens and hundreds."""
    factor = float(10.0 ** draw.uniform(0.5, 2.5))
    return _attention(model, lambda x: dataclasses.replace(x, query=x.query * factor))


def _offset(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """What all keys add to a row's scores: 10^3 to 10^7, where the key rows are 0."""
    size = float(10.0 ** draw.uniform(1.5, 3.5))

    def change(x: Any) -> Any:
        return dataclasses.replace(
            x,
            key=x.key.at[:, 0].set(0),
            query_bias=x.query_bias.at[:, 0].set(size),
            key_bias=x.key_bias.at[:, 0].set(size),
        )

    return _attention(model, change)


def _dominant(gap: float) -> Change:
    """Symbol 0 is a key that every row prefers by `gap`; what it reads there is 0."""

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


def _drawn_gap(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    most = 60.0 if model.dtype == jnp.float32 else 300.0
    return _dominant(draw.uniform(5.0, most))(model, draw)


def _underflow(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    return _dominant(draw.uniform(*UNDERFLOW[str(model.dtype)]))(model, draw)


def _biases(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    """A dominant column beside an offset of 1000."""
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


def _plain(model: jm.Transformer, draw: np.random.Generator) -> jm.Transformer:
    return model


# A change of the tensors, and how many different symbols the input has.
FAMILIES: dict[str, tuple[Change, int]] = {
    "plain": (_plain, 4),
    "peaked": (_peaked, 4),
    "equal rows": (_peaked, 1),
    "offset": (_offset, 4),
    "dominant": (_drawn_gap, 4),
    "underflow": (_underflow, 4),
    "biases": (_biases, 4),
}

FLAGS = benchmark_flags("radii", table=True)
CHOSEN = define_choices(FLAGS, "families", list(FAMILIES), list(FAMILIES), "families")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
SEEDS = flags.DEFINE_integer(
    "seeds", 4, "models of each family", lower_bound=1, flag_values=FLAGS
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in, all families of a seed together."""
    axes = grid(
        drawn=range(SEEDS.value),
        dtype=DTYPES.value,
        layers=[1, 2],
        family=CHOSEN.value,
    )
    for cell in axes:
        yield {**cell, "n": LENGTH, **SIZES}


def build(config: Config) -> Problem:
    """Returns the question of a row: all substitutions of a drawn input."""
    change, symbols = FAMILIES[config["family"]]
    draw = np.random.default_rng([config["seed"], config["drawn"]])
    model = jm.random_transformer(
        jax.random.key(config["drawn"]),
        num_layers=config["layers"],
        position=None,
        score="dot_product",
        dtype=config["dtype"],
        **SIZES,
    )
    tokens = draw.integers(0, symbols, config["n"]).astype(np.int32)
    tokens[draw.integers(config["n"])] = 0
    query = config["n"] - 1
    pairs = list_substitutions(tokens, model.vocab_size, query=query)
    model = change(model, draw)
    return Problem(model, tokens, query, "activation", pairs.position, pairs.symbol)


def digits(config: Config) -> int:
    """Returns the digits that tell an influence of e^-gap from 0 by subtraction."""
    wide = {"underflow": 744, "dominant": 300}.get(config["family"], 30)
    return 40 + int(wide / np.log(10) * (1 if config["dtype"] == "float64" else 0.25))


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: pairs, and what of them is outside, by method."""
    problem = build(config)
    every = range(problem.position.size)
    exact = exact_influences(problem, every, digits(config))
    row: dict[str, Any] = {"pairs": len(exact), "influence": float(max(exact))}
    for method in METHODS:
        found = computed(method, problem)
        assert found is not None
        influence, radius, _ = found
        errors = np.asarray(
            [float(abs(x - float(y))) for x, y in zip(exact, influence, strict=True)]
        )
        row[f"{method.name}_outside"] = int((errors > radius).sum())
        share = errors / np.where(radius > 0, radius, 1)
        row[f"{method.name}_of_radius"] = float(share.max())
    return row


def show(config: Config, row: Row) -> str:
    """Returns one row as a line."""
    outside = sum(row[f"{method.name}_outside"] for method in METHODS)
    text = (
        f"{config['family']} {config['dtype']} L = {config['layers']}: {row['pairs']}"
    )
    return text + (f" pairs, {outside} outside" if outside else " pairs inside")


def table(measured: Measured) -> str:
    """Returns the rows by family and type as a Markdown table."""
    names = [method.name for method in METHODS]
    lines = []
    for dtype in dict.fromkeys(config["dtype"] for config, _ in measured):
        for family in dict.fromkeys(config["family"] for config, _ in measured):
            rows = [
                row
                for config, row in measured
                if (config["dtype"], config["family"]) == (dtype, family)
            ]
            outside = sum(row[f"{name}_outside"] for row in rows for name in names)
            shares = [
                f"{max(row[f'{x}_of_radius'] for row in rows):.2g}" for x in names
            ]
            pairs = sum(row["pairs"] for row in rows)
            lines.append([family, dtype, str(pairs), str(outside), *shares])
    head = ("family", "type", "pairs", "outside", *(f"{x} / radius" for x in names))
    return table_text(head, lines)


BENCHMARK = Benchmark("radii", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
