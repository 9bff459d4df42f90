"""Where does the time of the L = 2 pair kernel go?

One block of the kernel is run under jax.profiler, and the time of XLA's threads is summed by
operation, each with the JAX operation that it was made for. Beside them: the FLOP/s of the
block and of a large product of the same type, run in turn in the same process. An operation
that waits for a core counts as if it ran, so that shares are those of a quiet machine only.

    python -m benchmarks.profile_pairs --length=1024 --dtype=float32
"""

import collections
import gzip
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import jax_models as jm
from bounds.arithmetic import count_operations
from bounds.influence import METHODS, Problem
from bounds.influence.substitution import list_substitutions

LENGTH = flags.DEFINE_integer("length", 1024, "Tokens n.", lower_bound=16)
DTYPE = flags.DEFINE_enum("dtype", "float64", ("float64", "float32"), "Float type.")
MASK = flags.DEFINE_string("mask", "none", "Mask of both layers.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Counted runs.", lower_bound=1)
TOP = flags.DEFINE_integer("top", 12, "Operations that are listed.", lower_bound=1)
# Width of the product that stands for the most a core does.
PEAK_WIDTH = 1024

Event = tuple[str, float, float]  # name, start and duration in microseconds
# Of a compiled program: %name = ... metadata={op_name="..."}
INSTRUCTION = re.compile(r'%([\w.\-]+) = .*?op_name="([^"]*)"')


def pose() -> Problem:
    """Returns the question of `influence_speed`, d = 16, H = 2, d_ff = 32, V = 2."""
    model = jm.random_transformer(
        jax.random.key(0),
        num_layers=2,
        num_heads=2,
        d_model=16,
        d_ff=32,
        vocab_size=2,
        mask=MASK.value,
        dtype=DTYPE.value,
    )
    tokens = np.random.default_rng(0).integers(0, 2, LENGTH.value, dtype=np.int32)
    pairs = list_substitutions(tokens, 2, query=-1 % tokens.size)
    asked = (tokens.size - 1, "activation", pairs.position, pairs.symbol)
    return Problem(model, tokens, *asked)


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


def time_runs(run: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """Returns the median seconds of two functions, run in turn."""
    found: tuple[list[float], list[float]] = [], []
    for _ in range(REPEATS.value):
        for function, seconds in zip((run, other), found, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(function())
            seconds.append(time.perf_counter() - start)
    return statistics.median(found[0]), statistics.median(found[1])


def main(arguments: list[str]) -> None:
    """Profiles one block and prints its operations by their own time."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    problem = pose()
    kernel = METHODS["incremental"].kernel(problem)
    assert kernel is not None
    (part,) = kernel.parts
    size = min(part.batch, part.end)
    block = jax.device_put((problem.position[:size], problem.symbol[:size]))
    traced = kernel.function.trace(*kernel.shared, *block, **part.options)
    compiled = traced.lower().compile()

    def run() -> Any:
        return compiled(*kernel.shared, *block)

    square = jnp.ones((PEAK_WIDTH, PEAK_WIDTH), DTYPE.value)
    product = jax.jit(lambda x: jnp.matmul(x, x, precision=jax.lax.Precision.HIGHEST))
    jax.block_until_ready((run(), product(square)))
    seconds, peak_seconds = time_runs(run, lambda: product(square))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(REPEATS.value):
                jax.block_until_ready(run())
        threads = read_trace(Path(folder))
    made = stages(compiled.as_text())
    report(threads, made, seconds, count_operations(traced.jaxpr), peak_seconds)


def report(
    threads: list[list[Event]],
    made: dict[str, str],
    seconds: float,
    flops: float,
    peak_seconds: float,
) -> None:
    """Prints the table.

    Args:
        threads: events of the traced runs.
        made: of `stages`.
        seconds: of one run.
        flops: of one run.
        peak_seconds: of the product.
    """
    totals: dict[str, float] = collections.defaultdict(float)
    for events in threads:
        for name, duration in own_times(e for e in events if e[0] in made).items():
            totals[name] += duration
    if not totals:
        raise SystemExit("the profiler tells no operation of this device's programs")
    whole = sum(totals.values())
    rate, peak = flops / seconds, 2 * PEAK_WIDTH**3 / peak_seconds
    print(
        f"block of {LENGTH.value} rows, {DTYPE.value}: {seconds:.4g} s, "
        f"{flops:.3g} FLOP, {rate / 1e9:.3g} GFLOP/s = {rate / peak:.2%} of a product "
        f"of {PEAK_WIDTH} x {PEAK_WIDTH} ({peak / 1e9:.3g})"
    )
    for name, duration in sorted(totals.items(), key=lambda x: -x[1])[: TOP.value]:
        each = duration / 1e3 / REPEATS.value
        print(f"{duration / whole:6.1%}  {each:9.3f} ms  {name}  {made[name]}")


if __name__ == "__main__":
    app.run(main)
