"""Do the radii hold where rounding is hardest?

Families of models made to lose digits, drawn by seed: every substitution of an input, by all
exact methods, beside the same by rerunning in mpmath (`benchmarks.reference`). A row is one
model: how many pairs (model, substitution), how many of them outside what the method states,
and the largest error as a share of the radius. `--seeds=160` is 10^5 pairs.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from benchmarks.accuracy import METHODS, computed, exact_influences
from benchmarks.flags import benchmark_flags, define_choices, define_dtypes
from benchmarks.page import table_text
from benchmarks.radii_families import DRAWN, FAMILIES, LENGTH
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds.influence.problem import Problem

FLAGS = benchmark_flags("radii", table=True)
CHOSEN = define_choices(FLAGS, "families", list(FAMILIES), list(FAMILIES), "families")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
SEEDS = flags.DEFINE_integer(
    "seeds", 4, "models of each family", lower_bound=1, flag_values=FLAGS
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in, all families of a seed together."""
    for drawn, dtype in itertools.product(range(SEEDS.value), DTYPES.value):
        for family in CHOSEN.value:
            for layers in (1, 2) if family in DRAWN else (None,):
                cell = {"family": family, "dtype": dtype, "layers": layers}
                yield {**cell, "drawn": drawn, "n": LENGTH}


def build(config: Config) -> Problem:
    """Returns the question of a row: all substitutions of a drawn input."""
    draw = np.random.default_rng([config["seed"], config["drawn"]])
    model, tokens = FAMILIES[config["family"]](config, draw)
    return Problem.ask(model, tokens)


def digits(config: Config) -> int:
    """Returns the digits that tell an influence of e^-gap from 0 by subtraction."""
    wide = {"underflow": 744, "dominant": 300, "formula": 600, "leaving": 300}
    wide |= {"peaked": 1000, "equal rows": 1000}
    gap = wide.get(config["family"], 30)
    return 40 + int(gap / np.log(10) * (1 if config["dtype"] == "float64" else 0.25))


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: pairs, and what of them is outside, by method."""
    problem = build(config)
    every = range(problem.position.size)
    exact = exact_influences(problem, every, digits(config))
    row: dict[str, Any] = {"pairs": len(exact), "influence": float(max(exact))}
    for method in METHODS:
        found = computed(method, problem)
        if found is None:
            continue
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
    outside = sum(row.get(f"{method.name}_outside", 0) for method in METHODS)
    text = (
        f"{config['family']} {config['dtype']} {config['layers'] or ''}: {row['pairs']}"
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
            outside = sum(
                row.get(f"{name}_outside", 0) for row in rows for name in names
            )
            worst = [
                max(row.get(f"{name}_of_radius", 0.0) for row in rows) for name in names
            ]
            shares = [f"{share:.2g}" for share in worst]
            pairs = sum(row["pairs"] for row in rows)
            lines.append([family, dtype, str(pairs), str(outside), *shares])
    head = ("family", "type", "pairs", "outside", *(f"{x} / radius" for x in names))
    return table_text(head, lines)


BENCHMARK = Benchmark("radii", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
