"""Figure of a restriction: where rows may attend before and after it fixes tokens."""

import math
from typing import TYPE_CHECKING, Any

from bounds.figures.primitives import COLOURS, new_figure
from bounds.restriction.analysis import (
    FREE,
    PartialInput,
    TooManyBits,
    Undecided,
    possible_edges,
)
from bounds.restriction.restriction import Restriction
from jax_models import Transformer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGIBLE = 24  # positions between which lines can be read
NOTE = (
    "position (from 0, as layers). Circles: ∗ free, grey fixed. Squares: rows that the "
    "query can depend on;\nblack: the query. Lines: where a row can attend to; bold: "
    "nowhere else. Before: as the search came\nto the layer. After: the whole "
    "restriction; more was fixed then, and what needlessly had been is free again."
)
ALONE: dict[str, Any] = {"linewidth": 1.2, "alpha": 0.9}
AMONG_OTHERS: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.4}
CIRCLE = {"s": 70, "edgecolors": "black", "linewidths": 0.6, "zorder": 2}


def restriction_figure(model: Transformer, found: Restriction) -> "Figure":
    """Figure of edges, each from a row to a key that it may attend to, by layer."""
    n, depth = len(found.rho), len(model.layers)
    width = max(3.0, 0.19 * n + 0.6)  # n = 14 is as wide as a page's text
    before = PartialInput(found.given, found.symbols)
    left = {stage.name: stage.partial for stage in found.stages}
    with new_figure((2 * width, 1.7 * depth + 0.5), depth, 2) as (figure, grid):
        for layer in range(depth):
            # The last layer is on top, as in drawings of the model.
            panels = grid[2 * (depth - 1 - layer) :]
            states = {"before": before, "after": found.partial}
            for axes, (when, state) in zip(panels, states.items(), strict=False):
                _draw_layer(axes, model, state, found.query, layer)
                title = f"layer {layer}, {when}: {len(state.free)} of {n} free"
                axes.set_title(title, fontsize=9)
            # A layer in which no bit was fixed has no stage.
            before = left.get(f"layer {layer}", before)
        figure.supxlabel(NOTE, fontsize=8)
    return figure


def _draw_layer(
    axes: "Axes", model: Transformer, state: PartialInput, query: int, layer: int
) -> None:
    """Draws one layer: input rows below, output rows above, edges as lines."""
    edges, tokens = [], state.tokens.tolist()
    try:
        edges = possible_edges(model, state, query, layer)
    except (TooManyBits, Undecided):
        text = "depends on too much"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center")
    for row, reached in edges:
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
