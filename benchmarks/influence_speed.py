"""How fast is the exact influence of all positions, in forward passes?

Times `incremental` over all positions and symbols against one forward pass of the same
model and float type, against one evaluation of the last row alone (the fair unit for
one layer), and against `exhaustive`, all in one run. `exhaustive` is timed on its first
substitutions and scaled to all of them where all would take longer than --budget; the
row says how many were run. Beside the times stand the floating-point operations of
`incremental`, counted in its programs (`bounds/arithmetic.py` says why not by the
compiler), how many a second they are, and the bytes of one block's program. Rows go to
results.sqlite in --out; a row that is there is not measured again.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from benchmarks.cells import find_or_measure
from benchmarks.timing import time_call
from bounds.influence.base import Problem
from bounds.influence.exhaustive import EXHAUSTIVE, batch_size
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.outline import estimate_work
from bounds.influence.substitution import list_substitutions
from bounds.store import ResultStore
from jax_models import Transformer, forward, random_transformer

LENGTHS = flags.DEFINE_list("lengths", ["256", "1024", "4096", "16384"], "lengths n")
LAYERS = flags.DEFINE_list("layers", ["1", "2"], "numbers of layers L")
DTYPES = flags.DEFINE_list("dtypes", ["float64", "float32"], "float types")
WEIGHTINGS = flags.DEFINE_list("weightings", ["softmax"], "weighting functions")
MASK = flags.DEFINE_string("mask", "none", "attention mask")
REPEATS = flags.DEFINE_integer("repeats", 7, "timed calls at most", lower_bound=1)
BUDGET = flags.DEFINE_float("budget", 20.0, "seconds for each timing", lower_bound=0)
EXHAUSTIVE_TO = flags.DEFINE_integer(
    "exhaustive_to", 16384, "longest n at which exhaustive is timed"
)
OUT = flags.DEFINE_string("out", "results/influence_speed", "folder of the store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}


def run_all(problem: Problem, method: Any, limit: int | None = None) -> int:
    """Runs a method's blocks, at most `limit` substitutions, and returns how many."""
    done = 0
    for block in method.blocks(problem):
        done += block.influence.size
        if limit is not None and done >= limit:
            break
    return done


def build(config: Mapping[str, Any]) -> tuple[Transformer, Problem]:
    """Returns the model and the question that a row's config describes."""
    model = random_transformer(
        jax.random.key(0),
        num_layers=config["layers"],
        weighting=config["weighting"],
        mask=config["mask"],
        dtype=jnp.dtype(config["dtype"]),
        **SIZES,
    )
    n = config["n"]
    tokens = np.asarray(jax.random.randint(jax.random.key(1), (n,), 0, 2), np.int32)
    pairs = list_substitutions(tokens, 2, query=n - 1)
    problem = Problem(model, tokens, n - 1, "activation", pairs.position, pairs.symbol)
    return model, problem


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: seconds of each, and the ratios."""
    model, problem = build(config)
    tokens, pairs = jnp.asarray(problem.tokens), problem.position.size
    time_it = functools.partial(time_call, repeats=REPEATS.value, budget=BUDGET.value)
    whole = jax.jit(lambda m, x: forward(m, x)[0])
    last = jax.jit(lambda m, x: forward(m, x, jnp.asarray([x.shape[0] - 1]))[0])
    row: dict[str, Any] = {"substitutions": pairs}
    timings = {
        "forward": time_it(lambda: whole(model, tokens)),
        "last_row": time_it(lambda: last(model, tokens)),
        "incremental": time_it(lambda: run_all(problem, INCREMENTAL)),
    }
    for name, timing in timings.items():
        row |= timing.columns(name)
    outline = INCREMENTAL.outline(problem)
    assert outline is not None
    work = estimate_work(outline)
    row["flops"] = work.flops
    row["flops_per_second"] = work.flops / row["incremental_seconds"]
    row["block_bytes"] = work.block.bytes
    row["calls"] = timings["incremental"].calls
    row["forward_passes"] = row["incremental_seconds"] / row["forward_seconds"]
    row["last_row_passes"] = row["incremental_seconds"] / row["last_row_seconds"]
    if config["n"] <= EXHAUSTIVE_TO.value:
        probe = min(pairs, 4 * batch_size(model, config["n"]))
        every = pairs * row["forward_seconds"] <= BUDGET.value
        count = pairs if every else probe
        timing = time_it(lambda: run_all(problem, EXHAUSTIVE, count))
        row |= timing.columns("exhaustive")
        row["exhaustive_substitutions"] = count
        row["exhaustive_seconds"] = timing.median * pairs / count
        row["speedup"] = row["exhaustive_seconds"] / row["incremental_seconds"]
    memory = jax.devices()[0].memory_stats() or {}
    row["peak_device_bytes"] = memory.get("peak_bytes_in_use")
    return row


def show(config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Prints one row as a line."""
    speedup = row.get("speedup")
    print(
        f"L = {config['layers']}  n = {config['n']:>6}  {config['dtype']}  "
        f"{config['weighting']}: incremental {row['incremental_seconds']:.4g} s = "
        f"{row['forward_passes']:.3g} forward passes = {row['last_row_passes']:.3g} "
        "last rows"
        + (f" = exhaustive / {speedup:.3g}" if speedup is not None else "")
        + f"; {row['flops_per_second'] / 1e9:.3g} GFLOP/s, {_memory(row)}",
        flush=True,
    )


def _memory(row: Mapping[str, Any]) -> str:
    """What is known of the memory: of a block's program, and the device's own count."""
    kinds = {"block_bytes": "a block", "peak_device_bytes": "the device at most"}
    known = [
        f"{row[name] / 2**20:.3g} MiB {kind}"
        for name, kind in kinds.items()
        if row[name] is not None
    ]
    return ", ".join(known) or "memory not told"


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, and prints all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for dtype in DTYPES.value:
            for layers in map(int, LAYERS.value):
                for weighting in WEIGHTINGS.value:
                    for n in map(int, LENGTHS.value):
                        config = {
                            "command": "influence_speed",
                            "device": str(jax.devices()[0].device_kind),
                            "dtype": dtype,
                            "layers": layers,
                            "mask": MASK.value,
                            "n": n,
                            "seed": 0,
                            "weighting": weighting,
                            **SIZES,
                        }
                        row = find_or_measure(
                            store,
                            config,
                            functools.partial(measure, config),
                            fresh=FRESH.value,
                        )
                        show(config, row)


if __name__ == "__main__":
    app.run(main)
