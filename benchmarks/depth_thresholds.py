"""From which length on can hard attention not compute PARITY or DYCK, by which route?

One row for each depth and number of heads: what is computable, and the threshold of each
route. With --docs the tables between the marks in that page are replaced; with --figure
the thresholds against the number of layers are drawn.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from absl import app, flags

from benchmarks.page import replace_table, table_text
from bounds.closed_form.depth import (
    Tower,
    computable_length,
    dyck_routes,
    parity_routes,
)
from bounds.closed_form.depth.routes import Route, least
from bounds.figures import LOOKS, save_figure

LAYERS = flags.DEFINE_integer("num_layers", 4, "the deepest", lower_bound=1)
FREE = flags.DEFINE_string("free", "1/2", "share kept free by routes H and A")
DOCS = flags.DEFINE_string("docs", None, "page whose tables are replaced")
FIGURE = flags.DEFINE_string("figure", None, "figure to draw, without its suffix")

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


def rows(num_layers: int) -> Iterator[tuple[int, int, dict[str, Tower]]]:
    """Yields the thresholds of every depth and number of heads."""
    for layers in range(1, num_layers + 1):
        for heads in HEADS:
            routes: list[Route] = list(
                parity_routes(layers, heads, Fraction(FREE.value))
            )
            found = {route.name: route.length for route in routes}
            found["dyck"] = least(list(dyck_routes(layers, heads))).length
            found["possible"] = Tower.of(computable_length(layers, heads))
            if layers == 1:
                found["switching"] = found["one layer, exact"]
            yield layers, heads, found


def cells(layers: int, heads: int, found: dict[str, Tower]) -> list[str]:
    """Returns a row of the table."""
    columns = [str(found.get(name, "")) for name in NAMES]
    ends = [str(found["possible"]), *columns, str(found["dyck"])]
    return [str(layers), str(heads), *ends]


def draw(table: list[tuple[int, int, dict[str, Tower]]], stem: str) -> None:
    """Draws the thresholds of one and eight heads against the layers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    series = {
        "possible": "computable",
        "switching": "PARITY, route S",
        "dyck": "DYCK",
        "switching, closed form": "S, closed form",
        "alteration": f"route A, C = {FREE.value}",
        "paper, A = 1/(f+1)": "route H, A = 1/(f+1)",
        "paper, A = 1/k^2": "route H, A = 1/k²",
    }
    for axes, heads in zip(panels, (1, 8), strict=True):
        for (name, label), look in zip(series.items(), LOOKS, strict=True):
            ours = [(l, one[name]) for l, h, one in table if h == heads and name in one]
            # A tower has no logarithm that an axis could show: the line ends before it.
            points = [(l, n.log10) for l, n in ours if n.log10 is not None]
            axes.plot(*zip(*points, strict=True), label=label, markersize=4, **look)
        axes.set_yscale("log")
        axes.set_xticks(range(1, LAYERS.value + 1))
        axes.set_xlabel("layers L")
        axes.set_title(f"H = {heads}", fontsize=9)
    panels[0].set_ylabel("decimal digits of n: log10 n")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, stem, ["png"])


def main(_: list[str]) -> None:
    """Prints the table, and puts it where it is asked for."""
    table = list(rows(LAYERS.value))
    text = table_text(HEAD, [cells(*row) for row in table])
    print(text)
    if DOCS.value:
        replace_table(Path(DOCS.value), "depth_thresholds", text)
    if FIGURE.value:
        draw(table, FIGURE.value)


if __name__ == "__main__":
    app.run(main)
