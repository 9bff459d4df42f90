"""How far are a scan's values off, and how far does it say they may be?

Scans of trained encoders (`make real` unpacks them into .real), of a causal model and of deep
models with random weights, and of PARITY, in float32, beside the same in float64: every
watched row of every substitution. A row of the store is one part of a model's substitutions,
so that a run that was stopped goes on: its errors and radii, by quantiles, and how many
errors are above their radius. `--pairs=2000` asks for so many substitutions a model; the
table joins the parts of a model (its quantiles are the medians of those of parts).
"""

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import bounds
import jax_models as jm
from benchmarks.flags import benchmark_flags, define_choices
from benchmarks.page import digits, table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from benchmarks.trained import CAUSAL, ENCODERS, draw_question, read_trained
from jax_models import InputError
from jax_models.constructions.parity import parity_transformer
from jax_models.model.transformer import Transformer

FLAGS = benchmark_flags("precision", table=True)
RANDOM: dict[str, dict[str, Any]] = {
    "pre-norm": {"num_layers": 4, "layer_norm": "pre", "activation": "gelu"},
    "post-norm": {"num_layers": 4, "layer_norm": "post", "activation": "gelu"},
    "relu": {"num_layers": 3, "activation": "relu"},
}
SHAPE: dict[str, Any] = {"num_heads": 4, "d_model": 64, "d_ff": 256, "vocab_size": 24}
NAMES = [*ENCODERS, *RANDOM, "parity"]
MODELS = define_choices(FLAGS, "models", NAMES, NAMES, "models")
METHODS = define_choices(
    FLAGS, "methods", ["partial", "incremental"], ["partial"], "methods"
)
PAIRS = flags.DEFINE_integer(
    "pairs", 96, "substitutions of a model", lower_bound=1, flag_values=FLAGS
)
PACKAGES = flags.DEFINE_string(
    "packages", ".real", "folder of the unpacked packages", flag_values=FLAGS
)
# Substitutions of a part: of four positions.
PART, SUBSTITUTES = 48, 12


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in; nothing of a model that is not there."""
    parts = range(-(-PAIRS.value // PART))
    for name, method in itertools.product(MODELS.value, METHODS.value):
        try:
            build(name, "float32")
        except InputError as error:
            print(f"skipped: {error}")
            continue
        for part in parts:
            yield {"model": name, "method": method, "dtype": "float32", "part": part}


def build(name: str, dtype: str) -> Transformer:
    """Returns a model; in float64 that of the same float32 weights.

    Args:
        name: in `NAMES`.
        dtype: "float32" or "float64".

    Raises:
        InputError: its weights are not there.
    """
    if name == "parity":
        model = parity_transformer(dtype=jnp.float32)
    elif name == "causal" or name in RANDOM:
        options = CAUSAL if name == "causal" else {**SHAPE, **RANDOM[name]}
        key = jax.random.key(0)
        model = jm.random_transformer(key, dtype="float32", num_classes=8, **options)
    else:
        head = "masked_lm" if name == "antiberty" else None
        model = read_trained(name, Path(PACKAGES.value), "float32", head)
    if dtype == "float32":
        return model
    return jax.tree.map(
        lambda x: x.astype(dtype) if x.dtype == jnp.float32 else x, model
    )


def draw(
    name: str, model: Transformer, seed: int
) -> tuple[np.ndarray, list[int], np.ndarray | None]:
    """Returns an input, positions and their substitutes of a part."""
    count = PART // SUBSTITUTES
    if name in ENCODERS:
        tokens, positions, symbols = draw_question(
            ENCODERS[name], count, SUBSTITUTES, seed
        )
        return tokens, positions.tolist(), symbols
    draws = np.random.default_rng(seed)
    tokens = draws.integers(0, model.vocab_size, 128)
    if name == "parity":  # bits, and the token where the answer stands
        tokens = np.append(draws.integers(0, 2, 127), 2)
        count = PART
    positions = np.sort(draws.choice(127, count, False))
    return tokens, positions.tolist(), None


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: errors and radii of a part of a model's substitutions."""
    name = config["model"]
    model = build(name, "float32")
    tokens, positions, symbols = draw(name, model, config["seed"] + config["part"])
    asked: dict[str, Any] = {
        "positions": positions,
        "symbols": symbols,
        "rows": "all",
        "target": "activation" if model.classes is None else "logits",
        "method": config["method"],
    }
    found = bounds.scan(model, tokens, **asked)
    true = bounds.scan(build(name, "float64"), tokens, **asked)
    there = np.isfinite(found.values) & (true.values > 0)
    errors = np.abs(found.values - true.values)[there]
    radii = (found.upper - found.values)[there]
    return {
        "pairs": found.substitutions,
        "n": int(tokens.size),
        "entries": int(errors.size),
        "outside": int((errors > radii).sum()),
        "of_radius": float((errors / radii).max()),
        "error_50": float(np.quantile(errors, 0.5)),
        "error_99": float(np.quantile(errors, 0.99)),
        "radius_50": float(np.median(radii)),
        "change_50": float(np.median(true.values[there])),
        "largest": float(true.values[there].max()),
    }


HEAD = (
    *("model", "n", "method", "substitutions", "entries", "change, median"),
    *("error, median", "error, 99 %", "radius, median", "radius / 99 %"),
    *("outside", "error / radius at most"),
)


def joined(rows: list[Row]) -> Row:
    """Returns the rows of a model as one: sums, medians of the parts, the worst."""
    found = {x: sum(row[x] for row in rows) for x in ("pairs", "entries", "outside")}
    medians = ("change_50", "error_50", "error_99", "radius_50")
    found |= {x: statistics.median(row[x] for row in rows) for x in medians}
    ratios = (row["radius_50"] / row["error_99"] for row in rows)
    found["ratio"] = statistics.median(ratios)
    found["of_radius"] = max(row["of_radius"] for row in rows)
    return found


def show(config: Config, row: Row) -> str:
    """Returns one row as a line."""
    return (
        f"{config['model']}, n = {row['n']}, {config['method']}, part {config['part']}: "
        f"{row['entries']} entries of {row['pairs']} substitutions, {row['outside']} "
        f"outside; error {row['error_99']:.2g} (99 %), radius {row['radius_50']:.2g} "
        f"(median), {row['of_radius']:.2g} of it at most"
    )


def table(measured: Measured) -> str:
    """Returns the rows by model and method as a Markdown table."""
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for config, row in measured:
        group = config["model"], row["n"], config["method"]
        groups.setdefault(group, []).append(row)
    lines = []
    for (name, n, method), rows in groups.items():
        row = joined(rows)
        numbers = ("change_50", "error_50", "error_99", "radius_50", "ratio")
        counts = [str(row["pairs"]), str(row["entries"])]
        shown = [digits(row[x]) for x in numbers]
        worst = [str(row["outside"]), digits(row["of_radius"])]
        lines.append([name, str(n), method, *counts, *shown, *worst])
    return table_text(HEAD, lines)


BENCHMARK = Benchmark("precision", FLAGS, cells, measure, show, table)

if __name__ == "__main__":
    run_script(BENCHMARK)
