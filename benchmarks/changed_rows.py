"""How many rows does one symbol change in a hard transformer, and what does that cost?

Follows all substitutions of one input through a random model whose layers are hard, and
reports per layer the distribution of the number of changed rows, and the seconds of the
whole sweep as a multiple of one forward pass of the same model, timed before and after
it in the same process. Everything is warm: the sweep runs once before it is timed. Rows
go to results.sqlite in --out; a row that is there is not measured again.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.flags import (
    benchmark_flags,
    define_choices,
    define_lengths,
    define_masks,
    define_seeds,
)
from benchmarks.page import column_table, digits
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, random_model, random_tokens
from benchmarks.timing import time_call
from bounds.influence.build import build_request
from bounds.influence.propagation.change_block import prepare
from bounds.influence.propagation.sparse import change_windows
from jax_models import WEIGHTINGS, forward

FLAGS = benchmark_flags("changed_rows", table=True)
LENGTHS = define_lengths(FLAGS, "10000")
LAYERS = flags.DEFINE_integer(
    "layers", 3, "number of layers L", lower_bound=3, flag_values=FLAGS
)
HARD = tuple(name for name in WEIGHTINGS if name != "softmax")
NAMES = define_choices(FLAGS, "weightings", HARD, HARD, "weightings")
MASKS = define_masks(FLAGS, "none", "future")
SEEDS = define_seeds(FLAGS, [0])


# Columns of a row, and how a heading calls them.
QUANTILES = {
    "min": "min",
    "median": "median",
    "90": "90 %",
    "max": "max",
    "mean": "mean",
}


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: quantiles of the changed rows per layer, seconds, the ratio."""
    model, tokens = random_model(config), random_tokens(config)
    request = build_request(model, tokens)
    run = jax.jit(lambda m, x: forward(m, x)[0])

    def passes() -> float:
        return time_call(
            lambda: run(model, jnp.asarray(tokens)), repeats=5, budget=20
        ).median

    def sweep() -> Any:
        state = prepare(model, jnp.asarray(tokens), request.query)
        return list(change_windows(request, state))

    start = time.perf_counter()
    sweep()
    first = time.perf_counter() - start
    before, start = passes(), time.perf_counter()
    windows = sweep()
    seconds = time.perf_counter() - start
    after = passes()
    row: dict[str, Any] = {
        "substitutions": len(request.pairs),
        "sweep_seconds": seconds,
        "sweep_first_seconds": first,
        "forward_seconds": before,
        "forward_seconds_after": after,
        "forward_passes": 2 * seconds / (before + after),
    }
    for k, sizes in enumerate(np.concatenate([w.sizes for w in windows], axis=1)):
        for name, share in (("min", 0), ("median", 0.5), ("90", 0.9), ("max", 1)):
            row[f"changed_{k + 1}_{name}"] = float(np.quantile(sizes, share))
        row[f"changed_{k + 1}_mean"] = float(sizes.mean())
    return row


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    layers = "; ".join(
        f"layer {k}: "
        + " / ".join(f"{row[f'changed_{k}_{name}']:.4g}" for name in QUANTILES)
        for k in range(1, config["layers"])
    )
    return (
        f"n = {config['n']}  {config['weighting']}  mask {config['mask']}  "
        f"seed {config['seed']}: {row['sweep_seconds']:.4g} s = "
        f"{row['forward_passes']:.3g} forward passes (before "
        f"{row['forward_seconds']:.3g} s, after {row['forward_seconds_after']:.3g} s); "
        f"changed rows, min / median / 90 % / max / mean, {layers}"
    )


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""

    def changed(layer: int) -> Callable[[Config, Row], str]:
        names = [f"changed_{layer}_{name}" for name in QUANTILES]
        return lambda _, row: " / ".join(digits(row[k]) for k in names if k in row)

    layers = max(config["layers"] for config, _ in measured)
    headings = {
        f"rows changed in layer {k}: {' / '.join(QUANTILES.values())}": changed(k)
        for k in range(1, layers)
    }
    return column_table(
        {
            "weighting": lambda config, _: config["weighting"],
            "mask": lambda config, _: config["mask"],
            "n": lambda config, _: str(config["n"]),
            "seconds": lambda _, row: digits(row["sweep_seconds"]),
            "forward passes": lambda _, row: digits(row["forward_passes"]),
            "seconds of one before, after": lambda _, row: (
                f"{digits(row['forward_seconds'])}, "
                f"{digits(row['forward_seconds_after'])}"
            ),
            **headings,
        },
        measured,
    )


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: length, weighting, mask, seed and sizes."""
    for cell in grid(
        n=LENGTHS.value, weighting=NAMES.value, mask=MASKS.value, seed=SEEDS.value
    ):
        yield {**cell, "layers": LAYERS.value, **SIZES}


BENCHMARK = Benchmark("changed_rows", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
