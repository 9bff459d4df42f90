"""Where does the time of the L = 2 pair kernel go?

One block of the kernel is run under jax.profiler, and the time of XLA's threads is summed by
operation, each with the JAX operation that it was made for. Beside them: the FLOP/s of the
block and of a large product of the same type, run in turn in the same process. An operation
that waits for a core counts as if it ran, so that shares are those of a quiet machine only.
"""

import collections
import gzip
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags

from benchmarks.flags import (
    benchmark_flags,
    define_dtypes,
    define_lengths,
    define_mask,
    define_weightings,
)
from benchmarks.operations import count_operations
from benchmarks.script import Benchmark, Config, Row, grid, run_script
from benchmarks.subject import SIZES, random_model, random_tokens
from bounds.influence import METHODS
from bounds.influence.build import build_request
from jax_models import InputError

FLAGS = benchmark_flags("profile_pairs", repeats=15, budget=60.0)
LENGTHS = define_lengths(FLAGS, "1024")
DTYPES = define_dtypes(FLAGS, "float64")
WEIGHTINGS = define_weightings(FLAGS, "softmax")
MASK = define_mask(FLAGS)
TOP = flags.DEFINE_integer(
    "top", 8, "operations that are listed", lower_bound=1, flag_values=FLAGS
)
# Width of the product that stands for the most a device does.
PEAK_WIDTH = 1024
# What the names of all operations of a block begin with.
WITHIN = "jit(change_block)/while/body/closed_call/"

Event = tuple[str, float, float]  # name, start and duration in microseconds
# Of a compiled program: %name = ... metadata={op_name="..."}
INSTRUCTION = re.compile(r'%([\w.\-]+) = .*?op_name="([^"]*)"')


def stages(program: str) -> dict[str, str]:
    """Returns, of the text of a compiled program, where each instruction was made."""
    return dict(INSTRUCTION.findall(program))


def own_times(events: Iterable[Event]) -> dict[str, float]:
    """Returns microseconds by name, what runs within an event taken from it.

    Args:
        events: of one thread, nested or apart.
    """
    totals: dict[str, float] = collections.defaultdict(float)
    open_: list[tuple[float, str]] = []
    for name, start, duration in sorted(events, key=lambda e: (e[1], -e[2])):
        while open_ and open_[-1][0] <= start:
            open_.pop()
        if open_:
            totals[open_[-1][1]] -= duration
        totals[name] += duration
        open_.append((start + duration, name))
    return dict(totals)


def read_trace(folder: Path) -> list[list[Event]]:
    """Returns the events of every thread of a trace that jax.profiler wrote."""
    (path,) = folder.rglob("*.trace.json.gz")
    with gzip.open(path, "rt") as file:
        entries = json.load(file)["traceEvents"]
    threads: dict[Any, list[Event]] = collections.defaultdict(list)
    for entry in entries:
        if entry.get("ph") == "X":
            event = entry["name"], float(entry["ts"]), float(entry["dur"])
            threads[entry["pid"], entry["tid"]].append(event)
    return list(threads.values())


def sum_operations(
    threads: Iterable[list[Event]], made: dict[str, str]
) -> dict[str, float]:
    """Returns microseconds of a program's operations over all threads, largest first.

    Args:
        threads: of `read_trace`.
        made: of `stages`; other events are left out.

    Raises:
        InputError: there is no operation of the program.
    """
    totals: dict[str, float] = collections.defaultdict(float)
    for events in threads:
        for name, duration in own_times(e for e in events if e[0] in made).items():
            totals[name] += duration
    if not totals:
        raise InputError("the profiler tells no operation of this device's programs")
    return dict(sorted(totals.items(), key=lambda entry: -entry[1]))


def time_in_turn(
    calls: tuple[Callable[[], Any], ...], repeats: int, budget: float
) -> list[float]:
    """Returns the median seconds of some functions, run in turn.

    Args:
        calls: the functions.
        repeats: rounds at most.
        budget: seconds after which no further round is begun.
    """
    rounds, began = [], time.perf_counter()
    while not rounds or (
        len(rounds) < repeats and time.perf_counter() - began < budget
    ):
        rounds.append([])
        for call in calls:
            start = time.perf_counter()
            jax.block_until_ready(call())
            rounds[-1].append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in zip(*rounds, strict=True)]


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: rates of the block and of a product, and the operations."""
    request = build_request(random_model(config), random_tokens(config))
    kernel = METHODS["incremental"].kernel(request)
    assert kernel is not None
    (part,) = kernel.parts
    size = part.batch
    block = jax.device_put((request.position[:size], request.symbol[:size]))
    function: Any = kernel.function
    traced = function.trace(*kernel.shared, *block, **part.options)
    compiled = traced.lower().compile()

    def run() -> Any:
        return compiled(*kernel.shared, *block)

    square = jnp.ones((PEAK_WIDTH, PEAK_WIDTH), config["dtype"])
    product = jax.jit(lambda x: jnp.matmul(x, x, precision=jax.lax.Precision.HIGHEST))
    jax.block_until_ready((run(), product(square)))
    seconds, peak_seconds = time_in_turn(
        (run, lambda: product(square)), config["repeats"], config["budget"]
    )
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(config["repeats"]):
                jax.block_until_ready(run())
        threads = read_trace(Path(folder))
    made = stages(compiled.as_text())
    totals = sum_operations(threads, made)
    flops = count_operations(traced.jaxpr)
    return {
        "substitutions": size,
        "block_seconds": seconds,
        "flops": flops,
        "flops_per_second": flops / seconds,
        "product_flops_per_second": 2 * PEAK_WIDTH**3 / peak_seconds,
        "operations_seconds": sum(totals.values()) / 1e6 / config["repeats"],
        "operations": [
            [duration / 1e6 / config["repeats"], name, made[name].replace(WITHIN, "")]
            for name, duration in totals.items()
        ],
    }


def show(config: Config, row: Row) -> str:
    """Returns one row as lines: the block, then its operations by their own time."""
    rate, peak = row["flops_per_second"], row["product_flops_per_second"]
    lines = [
        f"block of {row['substitutions']} substitutions, n = {config['n']}, "
        f"{config['dtype']}: {row['block_seconds']:.4g} s, {row['flops']:.3g} FLOP, "
        f"{rate / 1e9:.3g} GFLOP/s = {rate / peak:.1%} of a product of {PEAK_WIDTH} x "
        f"{PEAK_WIDTH} ({peak / 1e9:.3g})"
    ]
    for seconds, name, made in row["operations"][: TOP.value]:
        share = seconds / row["operations_seconds"]
        lines.append(f"{share:6.1%}  {1e3 * seconds:9.3f} ms  {name}  {made}")
    return "\n".join(lines)


def cells() -> Iterator[Config]:
    """Yields what the rows' configs differ in."""
    axes = {"dtype": DTYPES.value, "weighting": WEIGHTINGS.value, "n": LENGTHS.value}
    for cell in grid(**axes):
        yield {**SIZES, **cell, "layers": 2, "mask": MASK.value}


BENCHMARK = Benchmark("profile_pairs", FLAGS, cells, measure, show)

if __name__ == "__main__":
    run_script(BENCHMARK)
