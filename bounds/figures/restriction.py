"""Figure of a restriction: edges of possible attention by layer, before and after it."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bounds.figures.primitives import COLOURS, COLUMN, new_figure
from bounds.restriction.analysis import FREE
from bounds.restriction.record import STAGES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTE = (
    "position (from 0, as layers). Circles: ∗ free, grey fixed. Squares: rows that the "
    "query can depend on;\nblack: the query. Lines: where a row can attend to; bold: "
    "nowhere else. Before: as the search came\nto the layer. After: the whole "
    "restriction; more was fixed then, and what needlessly had been is free again."
)
ALONE: dict[str, Any] = {"linewidth": 1.2, "alpha": 0.9}
AMONG_OTHERS: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.4}
CIRCLE = {"s": 70, "edgecolors": "black", "linewidths": 0.6, "zorder": 2}


def restriction_figure(outline: Mapping[str, Any]) -> "Figure":
    """Figure of an outline: possible attention in each layer, or shares of free bits."""
    n = outline["n"]
    if "stages" in outline:
        return _shares(n, outline["stages"])
    panels = outline["panels"]
    depth = len(panels) // 2
    width = max(3.0, 0.19 * n + 0.6)  # n = 14 is as wide as a page's text
    with new_figure((2 * width, 1.7 * depth + 0.5), depth, 2) as (figure, grid):
        for number, panel in enumerate(panels):
            # The last layer is on top, as in drawings of the model.
            axes = grid[2 * (depth - 1 - number // 2) + number % 2]
            _draw_layer(axes, panel, outline["query"])
            free = panel["tokens"].count(FREE)
            title = f"layer {panel['layer']}, {panel['when']}: {free} of {n} free"
            axes.set_title(title, fontsize=9)
        figure.supxlabel(NOTE, fontsize=8)
    return figure


def _draw_layer(axes: "Axes", panel: Mapping[str, Any], query: int) -> None:
    """Draws one layer: input rows below, output rows above, lines of possible attention."""
    tokens, edges = panel["tokens"], panel["edges"]
    if edges is None:
        text = "depends on too much"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center")
    for row, reached in edges or []:
        look = ALONE if len(reached) == 1 else AMONG_OTHERS
        for position in reached:
            axes.plot([position, row], [0, 1], color=COLOURS[0], zorder=1, **look)
        colour = "black" if row == query else "0.5"
        axes.scatter([row], [1], marker="s", s=22, color=colour, zorder=2)
    shades = ["white" if token == FREE else "0.85" for token in tokens]
    axes.scatter(range(len(tokens)), [0] * len(tokens), c=shades, **CIRCLE)
    for place, token in enumerate(tokens):
        text = "∗" if token == FREE else str(token)
        axes.text(place, 0, text, ha="center", va="center", fontsize=7, zorder=3)
    axes.set_ylim(-0.35, 1.25)
    axes.set_yticks([0, 1], ["input", "output"], fontsize=8)
    axes.set_xticks(range(0, len(tokens), math.ceil(len(tokens) / 12)))
    axes.tick_params(labelsize=7, length=2)
    axes.spines[:].set_visible(False)


def _shares(n: int, stages: list[Mapping[str, Any]]) -> "Figure":
    """Bars of the free share after each stage, with a line on each stage's work."""
    names, free = ([one[key] for one in stages] for key in ("name", "free"))
    shown = [k for k in STAGES if any(name.startswith(k) for name in names)]
    with new_figure((COLUMN, 3.6)) as (figure, (axes,)):
        bars = axes.bar(names, [count / n for count in free], 0.6, color=COLOURS[0])
        axes.bar_label(bars, [*map(str, free)], fontsize=8)
        axes.set_ylim(0, 1.1)
        axes.set_ylabel(f"free share of n = {n} positions")
        axes.set_xlabel("after this stage (above a bar: how many are free)")
        figure.supxlabel("\n".join(f"{k}: {STAGES[k]}" for k in shown), fontsize=8)
    return figure
