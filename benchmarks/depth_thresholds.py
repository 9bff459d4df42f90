"""From which length on can hard attention not compute PARITY or DYCK, by which route?

One row for each depth and number of heads: what is computable, and the threshold of each
route, with the decimal logarithms of those that have one. Rows go to results.sqlite in
--out. With --docs the table between the marks in that page is replaced; the figure shows
the thresholds against the number of layers.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from absl import flags

from benchmarks.flags import benchmark_flags
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds.figures.primitives import LOOKS
from bounds.restriction.closed_form import (
    Tower,
    computable_length,
    dyck_routes,
    parity_routes,
)
from bounds.restriction.closed_form.routes import Route, least

FLAGS = benchmark_flags("depth_thresholds", table=True, figure=True)
LAYERS = flags.DEFINE_integer(
    "num_layers", 4, "the deepest", lower_bound=1, flag_values=FLAGS
)
FREE = flags.DEFINE_string(
    "free", "1/2", "share kept free by routes H and A", flag_values=FLAGS
)

HEADS = (1, 2, 4, 8)
HEAD = (
    "L",
    "H",
    "possible up to",
    "PARITY: S",
    "S, closed form",
    "A",
    "H, A = 1/(f+1)",
    "H, A = 1/k²",
    "DYCK, n even",
)
NAMES = (
    "switching",
    "switching, closed form",
    "alteration",
    "paper, A = 1/(f+1)",
    "paper, A = 1/k^2",
)


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: the lengths of all routes, as texts and as decimal logarithms."""
    layers, heads = config["layers"], config["heads"]
    routes: list[Route] = list(parity_routes(layers, heads, Fraction(config["free"])))
    found = {route.name: route.length for route in routes}
    found["dyck"] = least(list(dyck_routes(layers, heads))).length
    found["possible"] = Tower.of(computable_length(layers, heads))
    if layers == 1:
        found["switching"] = found["one layer, exact"]
    return {name: [str(n), n.log10] for name, n in found.items()}


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    return table_text(
        HEAD,
        [
            [str(config["layers"]), str(config["heads"])]
            + [row.get(name, [""])[0] for name in ("possible", *NAMES, "dyck")]
            for config, row in measured
        ],
    )


def draw(measured: Measured) -> Any:
    """Returns the figure: thresholds of one and eight heads against the layers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    free = measured[0][0]["free"]
    series = {
        "possible": "PARITY is computable up to this n",
        "switching": "PARITY: switching lemma",
        "dyck": "DYCK: the best route",
        "switching, closed form": "PARITY: switching lemma, closed form",
        "alteration": f"PARITY: alteration, {free} of the bits free",
        "paper, A = 1/(f+1)": "PARITY: Hahn's proof, A = 1/(f + 1)",
        "paper, A = 1/k^2": "PARITY: Hahn's proof, A = 1/k² as printed",
    }
    several = {name: f"{name} heads" if name > 1 else "one head" for name in HEADS}
    for axes, heads in zip(panels, (1, 8), strict=True):
        ours = [(c["layers"], row) for c, row in measured if c["heads"] == heads]
        for (name, label), look in zip(series.items(), LOOKS, strict=True):
            # A tower has no logarithm that an axis could show: the line ends before it.
            points = [
                (layers, row[name][1])
                for layers, row in ours
                if name in row and row[name][1] is not None
            ]
            axes.plot(*zip(*points, strict=True), label=label, markersize=4, **look)
        axes.set_yscale("log")
        axes.set_xticks([layers for layers, _ in ours])
        axes.set_xlabel("layers")
        axes.set_title(several[heads], fontsize=9)
    panels[0].set_ylabel("log₁₀ of the length n (decimal digits)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8,
        title="all but the first: no hard-attention model from this n on, by route of "
        "proof;\nA: weight of an event in the Local Lemma, f: events that it shares bits "
        "with, k: entries of\na head's list that are kept; lines end before thresholds "
        "that are towers of powers",
        title_fontsize=8,
    )
    return figure


def show(config: Config, row: Row) -> str:
    """Returns one measured row as a line of the table."""
    return table([(config, row)]).splitlines()[-1]


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: layers, heads and the free share."""
    for layers in range(1, LAYERS.value + 1):
        for heads in HEADS:
            yield {"layers": layers, "heads": heads, "free": FREE.value}


BENCHMARK = Benchmark("depth_thresholds", FLAGS, cells, measure, show, table, draw)


if __name__ == "__main__":
    run_script(BENCHMARK)
