"""With what exponents do time and arithmetic grow, in n, d, L and V?

Along each axis the size is doubled from a start, all else fixed, and the exact influence of
all positions (`incremental`) is timed beside a forward pass of the same model. The
exponent is the least-squares slope of log seconds against log size with its standard error,
and the slope between the two largest sizes, where start-up costs weigh least. Beside them
are the exponents of the counted operations, and those that the method states: a stated
range is where a lower power gives way to a higher one as the size grows. (What is formed
once for a tile of pairs takes d^3, and shows in d from some 256 on.)
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.flags import benchmark_flags, define_choices, define_dtypes
from benchmarks.operations import (
    Outline,
    count_operations,
    influence_operations,
)
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from benchmarks.subject import SIZES, asked_anew, random_model, random_tokens
from benchmarks.timing import time_call
from bounds.figures.primitives import LOOKS
from bounds.influence.build import build_request
from bounds.influence.methods.incremental import INCREMENTAL
from jax_models import forward

Exponents = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Axis:
    """A size that grows, with the exponents stated for it.

    Attributes:
        words: Label of the axis in the figure.
        grow: Function from a factor 1, 2, 4, ... to the config's entries that grow.
        size: Function from a config to the size whose power the time is.
        influence: The least and the largest stated exponent of all influences.
        forward: The same of a forward pass.
    """

    words: str
    grow: Callable[[int], dict[str, int]]
    size: Callable[[Config], int]
    influence: Exponents
    forward: Exponents


def _length(start: int, layers: int, exponent: int) -> Axis:
    # A forward pass takes n d^2 besides n^2 d.
    return Axis(
        f"length n (tokens), L = {layers}",
        lambda factor: {"n": start * factor, "layers": layers},
        lambda config: config["n"],
        (exponent, exponent),
        (1, 2),
    )


AXES = {
    "n at L=1": _length(2048, 1, 1),
    "n at L=2": _length(512, 2, 2),
    "n at L=3": _length(64, 3, 3),
    # Scores and means take d a pair, projections and feed-forward d^2 a row.
    "d": Axis(
        "width d, n = 512, L = 2",
        lambda factor: {
            "n": 512,
            "layers": 2,
            "d_model": 8 * factor,
            "d_ff": 16 * factor,
        },
        lambda config: config["d_model"],
        (1, 2),
        (1, 2),
    ),
    # The first layer and the last row are cheaper than what lies between.
    "L": Axis(
        "layers L, n = 64",
        lambda factor: {"n": 64, "layers": 3 * factor},
        lambda config: config["layers"],
        (1, 1),
        (1, 1),
    ),
    # Of substitutes, V - 1 for each position.
    "V-1": Axis(
        "substitutes V - 1, n = 512, L = 2",
        lambda factor: {"n": 512, "layers": 2, "vocab_size": 1 + factor},
        lambda config: config["vocab_size"] - 1,
        (1, 1),
        (0, 0),
    ),
}

FLAGS = benchmark_flags("scaling", repeats=5, budget=3.0, table=True, figure=True)
DTYPES = define_dtypes(FLAGS, "float64")
CHOSEN = define_choices(FLAGS, "axes", list(AXES), list(AXES), "what grows")
DOUBLINGS = flags.DEFINE_integer(
    "doublings", 3, "doublings of each size", lower_bound=2, flag_values=FLAGS
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries, one config for each size of each axis."""
    for dtype in DTYPES.value:
        for name in CHOSEN.value:
            # Twelve layers and more take a minute to compile.
            count = 1 + min(DOUBLINGS.value, 2 if name == "L" else DOUBLINGS.value)
            for power in range(count):
                grown = AXES[name].grow(2**power)
                yield {"dtype": dtype, "axis": name, **SIZES, **grown}


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds and operations of all influences and of a pass."""
    model, tokens = random_model(config), random_tokens(config)
    request = build_request(model, tokens)
    outline = Outline.of(INCREMENTAL, request)
    time_it = functools.partial(
        time_call, repeats=config["repeats"], budget=config["budget"]
    )
    run, given = jax.jit(lambda m, x: forward(m, x)[0]), jnp.asarray(tokens)

    def influences() -> list[Any]:
        return list(INCREMENTAL.blocks(asked_anew(request)))

    row: dict[str, Any] = {
        **time_it(influences).columns("influence"),
        **time_it(lambda: run(model, given)).columns("forward"),
        "influence_flops": influence_operations(outline),
        "forward_flops": count_operations(run.trace(model, given).jaxpr),
    }
    row["forward_passes"] = row["influence_seconds"] / row["forward_seconds"]
    return row


@dataclasses.dataclass(frozen=True)
class Fit:
    """An exponent: the slope of log value against log size."""

    slope: float
    error: float  # its standard error
    last: float  # the slope between the two largest sizes

    def __str__(self) -> str:
        """Slope, its standard error, and the last slope, as text."""
        return f"{self.slope:z.2f} ± {self.error:.2f} ({self.last:z.2f})"


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> Fit:
    """Returns the least-squares exponent of values in sizes.

    Slope Σ (x - x̄) y / Σ (x - x̄)², x and y the logarithms, and its standard error
    √(Σ r² / (k - 2) / Σ (x - x̄)²), r the residuals.
    """
    x, y = np.log(sizes), np.log(values)
    centred = x - x.mean()
    square = float(centred @ centred)
    slope = float(centred @ y) / square
    residual = y - y.mean() - slope * centred
    error = math.sqrt(float(residual @ residual) / (len(x) - 2) / square)
    return Fit(slope, error, float((y[-1] - y[-2]) / (x[-1] - x[-2])))


def series(measured: Measured) -> dict[tuple[str, str], list[tuple[int, Row]]]:
    """Returns the rows of each axis and float type, with their sizes, in order of size.

    Where sizes have failed so that fewer than three are left, there is no exponent.
    """
    found: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    for config, row in measured:
        size = AXES[config["axis"]].size(config)
        found.setdefault((config["axis"], config["dtype"]), []).append((size, row))
    return {
        name: sorted(rows, key=lambda x: x[0])
        for name, rows in found.items()
        if len(rows) > 2
    }


HEAD = (
    *("axis", "type", "sizes", "influence: seconds", "operations", "stated"),
    *("forward pass: seconds", "operations", "stated"),
)


def table(measured: Measured) -> str:
    """Returns exponents as a Markdown table: slope ± standard error (last two)."""
    lines = []
    for (axis, dtype), rows in series(measured).items():
        sizes = [size for size, _ in rows]
        cells = [axis, dtype, f"{sizes[0]} to {sizes[-1]}"]
        for what in ("influence", "forward"):
            for column in ("seconds", "flops"):
                values = [row[f"{what}_{column}"] for _, row in rows]
                cells.append(str(fit_exponent(sizes, values)))
            cells.append(stated(getattr(AXES[axis], what)))
        lines.append(cells)
    return table_text(HEAD, lines)


def stated(exponents: Exponents) -> str:
    """Returns the text of stated exponents, for the table."""
    least, most = exponents
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"{config['axis']} = {AXES[config['axis']].size(config)}, {config['dtype']}: "
        f"influence {row['influence_seconds']:.4g} s = {row['forward_passes']:.3g} "
        f"forward passes, {row['influence_flops']:.3g} FLOP"
    )


def draw(measured: Measured) -> Any:
    """Returns the figure: seconds against each size, with the stated largest slopes."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullFormatter, NullLocator

    found = series(measured)
    axes_names = list(dict.fromkeys(axis for axis, _ in found))
    columns = max(1, min(3, len(axes_names)))
    count = max(1, math.ceil(len(axes_names) / columns))
    figure = Figure(figsize=(7.0, 2.3 * count + 0.5), layout="constrained")
    panels = figure.subplots(count, columns, squeeze=False).ravel()
    for panel in panels[len(axes_names) :]:
        panel.set_visible(False)
    for panel, name in zip(panels, axes_names, strict=False):
        looks = iter(LOOKS)
        for (axis, dtype), rows in found.items():
            if axis != name:
                continue
            sizes = [size for size, _ in rows]
            for what in ("influence", "forward"):
                seconds = [row[f"{what}_seconds"] for _, row in rows]
                label = f"{'forward pass' if what == 'forward' else what}, {dtype}"
                panel.plot(sizes, seconds, **next(looks), markersize=4, label=label)
                power = getattr(AXES[axis], what)[1]
                rule = [seconds[-1] * (size / sizes[-1]) ** power for size in sizes]
                panel.plot(sizes, rule, color="0.6", linewidth=0.8)
            panel.set_xscale("log", base=2)
            panel.set_xticks(sizes, map(str, sizes))
        panel.set_yscale("log")
        low, high = np.log10(panel.get_ylim())
        panel.set_ylim(
            10.0 ** np.floor(low), 10.0 ** np.ceil(high)
        )  # two labels at least
        panel.set_xlabel(AXES[name].words, fontsize=8)
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[::columns]:
        panel.set_ylabel("seconds a call")
    handles, labels = panels[0].get_legend_handles_labels()
    rule = Line2D([], [], color="0.6", linewidth=0.8)
    figure.legend(
        [*handles, rule],
        [*labels, "the largest stated power, through the last point"],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    return figure


BENCHMARK = Benchmark("scaling", FLAGS, cells, measure, show, table, draw)

if __name__ == "__main__":
    run_script(BENCHMARK)
