"""How long does a forward pass take, and how much memory?

Times one forward pass over all rows, per float type, weighting and length, with the
peak memory of the process (its resident set; on an accelerator the device's own count
besides) and that before the first pass. Attention runs by blocks of summaries, so memory
should grow like n and not like n^2. Lengths go upwards, so that a peak belongs to the
length it is reported with. With --num_devices rows and keys are shared out over as many
devices, which a CPU is divided into; the process holds what all of them hold. Rows go to
results.sqlite in --out; a row that is there is not measured again.
"""

import functools
import resource
import sys
from collections.abc import Iterator
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
from benchmarks.line_figure import Panel, line_figure, lines_by
from benchmarks.page import column_table, digits
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, random_model, random_tokens
from benchmarks.timing import spread, time_call
from jax_models import apply, device_mesh, forward

FLAGS = benchmark_flags("forward_pass", repeats=5, budget=10.0, table=True, figure=True)
LENGTHS = define_lengths(FLAGS, "1024,10000,100000")
DTYPES = define_dtypes(FLAGS, "float64")
WEIGHTINGS = define_weightings(FLAGS, "softmax")
MASK = define_mask(FLAGS)
NUM_DEVICES = flags.DEFINE_integer(
    "num_devices",
    None,
    "devices that rows and keys are shared out over",
    lower_bound=1,
    flag_values=FLAGS,
)
LAYERS = flags.DEFINE_integer(
    "layers", 2, "number of layers L", lower_bound=1, flag_values=FLAGS
)

# The system counts the memory of a process in these units.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_bytes() -> int:
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds of a pass, compile time, and peak memory."""
    model, tokens = random_model(config), jnp.asarray(random_tokens(config))
    before = peak_bytes()
    if config["num_devices"] is None:
        run = jax.jit(lambda model, tokens: forward(model, tokens)[0])
    else:
        mesh = device_mesh(config["num_devices"])
        run = functools.partial(apply, ties="ignore", mesh=mesh)
    timing = time_call(
        lambda: run(model, tokens), repeats=config["repeats"], budget=config["budget"]
    )
    memory = jax.devices()[0].memory_stats() or {}
    return {
        **timing.columns("forward"),
        "calls": timing.calls,
        "before_bytes": before,
        "peak_bytes": peak_bytes(),
        "peak_device_bytes": memory.get("peak_bytes_in_use"),
    }


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"n = {config['n']:>6}  {config['dtype']}  {config['weighting']}: "
        f"{row['forward_seconds']:.4g} s, peak memory "
        f"{_gibibytes(row['peak_bytes'])} GiB ({_gibibytes(row['before_bytes'])} before)"
    )


def _gibibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**30:.2f}"


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    return column_table(
        {
            "L": lambda config, _: str(config["layers"]),
            "weighting": lambda config, _: config["weighting"],
            "n": lambda config, _: str(config["n"]),
            "type": lambda config, _: config["dtype"],
            "devices": lambda config, _: str(config["num_devices"] or ""),
            "seconds": lambda _, row: spread(row, "forward"),
            "compiling": lambda _, row: digits(row.get("forward_compile_seconds")),
            "peak memory, GiB": lambda _, row: _gibibytes(row["peak_bytes"]),
            "before": lambda _, row: _gibibytes(row["before_bytes"]),
        },
        measured,
    )


def draw(measured: Measured) -> Any:
    """Returns the figure: seconds, and the memory of the process."""

    def label(config: Config) -> str:
        return f"{config['weighting']}, {config['dtype']}"

    seconds = lines_by(measured, label, lambda _, row: row["forward_seconds"])
    memory = lines_by(
        measured, label, lambda _, row: row["peak_bytes"] and row["peak_bytes"] / 2**30
    )
    return line_figure(
        [
            Panel("seconds of a forward pass", seconds),
            Panel("peak memory of the process, GiB", memory, logarithmic=False),
        ]
    )


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries, shortest lengths first."""
    shared = {"layers": LAYERS.value, "mask": MASK.value, **SIZES}
    shared["num_devices"] = NUM_DEVICES.value
    if NUM_DEVICES.value is not None:
        jax.config.update("jax_num_cpu_devices", NUM_DEVICES.value)
    for cell in grid(n=LENGTHS.value, dtype=DTYPES.value, weighting=WEIGHTINGS.value):
        yield {**cell, **shared}


BENCHMARK = Benchmark("forward_pass", FLAGS, cells, measure, show, table, draw)


if __name__ == "__main__":
    run_script(BENCHMARK)
