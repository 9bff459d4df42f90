"""How far are the kernels from what the device can do?

For each kernel the floating-point operations a second and the bytes a second that it
reaches, beside the device's own peaks, measured in the same run and float type: a large
matrix product, and a large array multiplied in place by a number, which reads and writes
each of its bytes once. The roof of a kernel is min(peak FLOP/s, intensity x peak bytes/s),
intensity being FLOP per byte; `fraction` is what it reaches of that.

Operations are counted in the traced program (`benchmarks.operations`). Bytes are
those of the arrays that a kernel is given and of those it returns, each once: the least
that must move, as if all between stayed in a cache. Beside them `traffic` is the most:
each operation's operands and results, nothing fused. What moves lies between.

The kernels are the forward pass; the replaced column of the query row (one layer); the
tile of (substitution, row) pairs (two layers); all rows moved (three layers). Of the last
two a few blocks are run, several under way at a time as always.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.flags import benchmark_flags, define_choices, define_dtypes
from benchmarks.operations import Outline, count_operations, count_traffic
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, random_model, random_tokens
from benchmarks.timing import Timing, spread, time_call
from bounds.figures.primitives import LOOKS
from bounds.influence.blocks.kernel import run_kernel
from bounds.influence.build import build_request
from bounds.influence.methods.incremental import INCREMENTAL
from jax_models import forward

# Of each: layers, length, and blocks of substitutions at most.
KERNELS = {
    "forward pass": (2, 2048, 0),
    "replaced column L=1": (1, 65536, 8),
    "pairs L=2": (2, 4096, 4),
    "all rows moved L=3": (3, 512, 4),
}
# What the figure calls them.
WORDS = {
    "forward pass": "forward pass, L = 2",
    "replaced column L=1": "replaced column of the query, L = 1",
    "pairs L=2": "pairs of substitution and row, L = 2",
    "all rows moved L=3": "all rows moved, L = 3",
}

FLAGS = benchmark_flags("roofline", repeats=5, budget=2.0, table=True, figure=True)
DTYPES = define_dtypes(FLAGS, "float64", "float32")
CHOSEN = define_choices(FLAGS, "kernels", list(KERNELS), list(KERNELS), "kernels")
MATMUL = flags.DEFINE_integer(
    "matmul", 2048, "side of the matrix product", lower_bound=1, flag_values=FLAGS
)
TIMES = flags.DEFINE_integer(
    "times", 1, "factor of all lengths", lower_bound=1, flag_values=FLAGS
)
COPY = flags.DEFINE_integer(
    "copy_mib", 256, "size of the copied array", lower_bound=1, flag_values=FLAGS
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A call to time, with the operations, bytes and traffic of one call."""

    call: Callable[[], Any]
    flops: float
    bytes: float
    traffic: float


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: float type, kernel and sizes."""
    for cell in grid(dtype=DTYPES.value, kernel=CHOSEN.value):
        layers, n, blocks = KERNELS[cell["kernel"]]
        peaks = {"matmul": MATMUL.value, "copy_mib": COPY.value}
        yield {
            **cell,
            "layers": layers,
            "n": n * TIMES.value,
            "blocks": blocks,
            **peaks,
            **SIZES,
        }


def forward_program(config: Config) -> Program:
    """Returns the program of one forward pass over all rows."""
    model, tokens = random_model(config), jnp.asarray(random_tokens(config))
    run = jax.jit(lambda model, tokens: forward(model, tokens)[0])
    traced = run.trace(model, tokens)
    moved = size_in_bytes((model, tokens)) + size_in_bytes(traced.out_info)
    jaxpr = traced.jaxpr
    work = count_operations(jaxpr), moved, count_traffic(jaxpr)
    return Program(lambda: run(model, tokens), *work)


def influence_program(config: Config) -> Program:
    """Returns the program of the first blocks of `incremental`, without the base pass."""
    model, tokens = random_model(config), random_tokens(config)
    whole = build_request(model, tokens)
    outline = Outline.of(INCREMENTAL, whole)
    part = outline.kernel.parts[0]
    batch = part.batch
    blocks = min(config["blocks"], math.ceil((part.end - part.start) / batch))
    first = slice(min(blocks * batch, part.end))
    request = dataclasses.replace(whole, pairs=whole.pairs.only(first))
    kernel = INCREMENTAL.kernel(request)
    assert kernel is not None
    traced = outline.trace(part)
    # A block is given two int32 for each substitution, and what all blocks share.
    each = 8 * batch + size_in_bytes(traced.out_info)
    return Program(
        lambda: list(run_kernel(kernel, request)),
        blocks * count_operations(traced.jaxpr),
        size_in_bytes(kernel.shared) + blocks * each,
        blocks * count_traffic(traced.jaxpr),
    )


def size_in_bytes(arrays: Any) -> int:
    """Returns the bytes of a pytree of arrays or of traced shapes."""
    leaves = jax.tree.leaves(arrays)
    return sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in leaves)


@functools.cache
def matmul_peak(dtype: str, side: int, repeats: int, budget: float) -> float:
    """Returns FLOP/s of a square matrix product at the highest precision."""
    one = jax.random.normal(jax.random.key(0), (side, side), dtype)
    run = jax.jit(lambda x, y: jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST))
    timing = time_call(lambda: run(one, one), repeats=repeats, budget=budget)
    return 2 * side**3 / timing.fastest


@functools.cache
def copy_peak(dtype: str, mib: int, repeats: int, budget: float) -> float:
    """Returns bytes/s of an array that is read, multiplied and written in place.

    In place, since a new array's pages are first touched, which is no traffic.
    """
    held = [jnp.ones(mib * 2**20 // np.dtype(dtype).itemsize, dtype)]
    turn, size = jnp.asarray(-1, dtype), held[0].nbytes
    run = jax.jit(lambda x, y: x * y, donate_argnums=0)

    def call() -> Any:
        held[0] = run(held[0], turn)
        return held[0]

    return 2 * size / time_call(call, repeats=repeats, budget=budget).fastest


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: a kernel's rates, the device's peaks, and the share of the roof."""
    how: dict[str, Any] = {name: config[name] for name in ("repeats", "budget")}
    peak_flops = matmul_peak(config["dtype"], config["matmul"], **how)
    peak_bytes = copy_peak(config["dtype"], config["copy_mib"], **how)
    make = forward_program if config["kernel"] == "forward pass" else influence_program
    program = make(config)
    timing = time_call(program.call, **how)
    peaks = {"peak_flops_per_second": peak_flops, "peak_bytes_per_second": peak_bytes}
    return (
        timing.columns("kernel")
        | peaks
        | rates(program, timing, peak_flops, peak_bytes)
    )


def rates(
    program: Program, timing: Timing, peak_flops: float, peak_bytes: float
) -> dict[str, float]:
    """Returns a program's rates, intensities, roof, and reached share of the roof."""
    reached = program.flops / timing.median
    intensity = program.flops / program.bytes
    roof = min(peak_flops, intensity * peak_bytes)
    return {
        "flops": program.flops,
        "bytes": program.bytes,
        "traffic": program.traffic,
        "flops_per_second": reached,
        "bytes_per_second": program.bytes / timing.median,
        "traffic_per_second": program.traffic / timing.median,
        "intensity": intensity,
        "least_intensity": program.flops / program.traffic,
        "roof": roof,
        "fraction": reached / roof,
    }


HEAD = (
    *("type", "kernel", "n", "seconds", "GFLOP/s", "GB/s", "FLOP/byte"),
    *("unfused GB/s", "peak GFLOP/s", "peak GB/s", "of the roof"),
)


def line(config: Config, row: Row) -> list[str]:
    """Returns one row as the cells of a line of the table."""
    named = [config["dtype"], config["kernel"], str(config["n"])]
    rates = ("flops", "bytes", "traffic", "peak_flops", "peak_bytes")
    reached = {name: f"{row[f'{name}_per_second'] / 1e9:.3g}" for name in rates}
    return [
        *named,
        spread(row, "kernel"),
        reached["flops"],
        reached["bytes"],
        f"{row['intensity']:.3g}",
        reached["traffic"],
        reached["peak_flops"],
        reached["peak_bytes"],
        f"{100 * row['fraction']:.2g} %",
    ]


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"{config['dtype']}  {config['kernel']}, n = {config['n']}: "
        f"{row['flops_per_second'] / 1e9:.3g} GFLOP/s at {row['intensity']:.3g} FLOP/byte, "
        f"{100 * row['fraction']:.2g} % of the roof "
        f"({row['peak_flops_per_second'] / 1e9:.3g} GFLOP/s, "
        f"{row['peak_bytes_per_second'] / 1e9:.3g} GB/s)"
    )


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    return table_text(HEAD, [line(config, row) for config, row in measured])


def draw(measured: Measured) -> Any:
    """Returns the figure: operations a second against intensity, under the roofs.

    A filled mark stands at the intensity of the bytes that must move, the open one on
    the same level at that of all operands and results.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    dtypes = list(dict.fromkeys(config["dtype"] for config, _ in measured))
    figure = Figure(figsize=(7.0, 3.9), layout="constrained")
    panels = figure.subplots(1, len(dtypes), squeeze=False, sharex=True, sharey=True)[0]
    for axes, dtype in zip(panels, dtypes, strict=True):
        rows = [(config, row) for config, row in measured if config["dtype"] == dtype]
        least = min(row["least_intensity"] for _, row in rows)
        most = max(row["intensity"] for _, row in rows)
        span = np.geomspace(least / 3, 3 * most, 200)
        for peaks in dict.fromkeys(_peaks(row) for _, row in rows):
            axes.plot(span, roof(span, *peaks), color="0.4", linewidth=1)
        for (config, row), look in zip(rows, LOOKS, strict=False):
            level = 2 * [row["flops_per_second"] / 1e9]
            mark = {"color": look["color"], "marker": look["marker"], "markersize": 6}
            ends = [row["least_intensity"], row["intensity"]]
            axes.plot(
                ends,
                level,
                linewidth=0.8,
                **mark,
                markevery=[1],
                label=WORDS[config["kernel"]],
            )
            axes.plot(ends[:1], level[:1], **mark, markerfacecolor="white")
        axes.set(xscale="log", yscale="log", xlabel="operations a byte (FLOP/byte)")
        axes.set_title(dtype, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("operations reached (GFLOP/s)")
    handles, labels = panels[0].get_legend_handles_labels()
    grey: dict[str, Any] = {"color": "0.4", "linewidth": 1}
    mark: dict[str, Any] = {"color": "0.4", "marker": "o", "linestyle": "none"}
    told = {
        "most that this device can reach": Line2D([], [], **grey),
        "at the bytes that must move at least": Line2D([], [], **mark),
        "if every operand and result moved": Line2D(
            [], [], **mark, markerfacecolor="white"
        ),
    }
    figure.legend(
        [*handles, *told.values()],
        [*labels, *told],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    return figure


def _peaks(row: Row) -> tuple[float, float]:
    return row["peak_flops_per_second"] / 1e9, row["peak_bytes_per_second"] / 1e9


def roof(intensity: np.ndarray, peak_flops: float, peak_bytes: float) -> np.ndarray:
    """Returns the largest FLOP/s that the peaks allow at each intensity."""
    return np.minimum(peak_flops, intensity * peak_bytes)


BENCHMARK = Benchmark("roofline", FLAGS, cells, measure, show, table, draw)

if __name__ == "__main__":
    run_script(BENCHMARK)
