"""A picture of a restriction: who can attend to whom, layer by layer.

For short inputs each layer has two panels, before its bits were fixed and under the whole
restriction: its input rows below, its output rows above, and a line wherever one can attend
to the other. For long ones the share of free positions after each stage is drawn.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax_models as jm
from bounds.figures.primitives import COLOURS, COLUMN, new_figure
from bounds.restriction.analysis import TooManyBits, possible_edges
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.restriction import Restriction
from bounds.restriction.tabulate import Undecided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Work of each stage of a search, of those that are drawn.
STAGES = {
    "given": "before the search",
    "layer": "bits are fixed until each row of that layer depends on few",
    "alteration": "bits are fixed at random, then repaired",
    "closing": "bits are fixed until the query's output is constant",
    "reverse pass": "fixed bits that are not needed are freed again",
}
NOTE = (
    "position (from 0, as layers). Circles: ∗ free, grey fixed. Squares: rows that the "
    "query can depend on;\nblack: the query. Lines: where a row can attend to; bold: "
    "nowhere else. Before: as the search came\nto the layer. After: the whole "
    "restriction; more was fixed then, and what needlessly had been is free again."
)
ALONE: dict[str, Any] = {"linewidth": 1.2, "alpha": 0.9}
AMONG_OTHERS: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.4}
CIRCLE = {"s": 70, "edgecolors": "black", "linewidths": 0.6, "zorder": 2}
# Positions that a picture of lines can show legibly.
LEGIBLE = 24


def outline_restriction(model: jm.Transformer, found: Restriction) -> dict[str, Any]:
    """Content of the picture: length `n`, position `query`, and `panels` or `stages`.

    Panels are two per layer for n <= 24, before and after, each with `tokens` and `edges`
    (a row and the positions that it can attend to; None where it depends on too much);
    stages have a name and the number of positions that are `free` after them.
    """
    outline: dict[str, Any] = {"n": len(found.rho), "query": found.query}
    if outline["n"] > LEGIBLE:
        free = int((found.given == FREE).sum())
        stages = [{"name": one.name, "free": one.free} for one in found.stages]
        return outline | {"stages": [{"name": "given", "free": free}, *stages]}
    panels = []
    for depth, before in enumerate(states_before(model, found)):
        for state, when in ((before, "before"), (found.partial, "after")):
            edges = None
            with contextlib.suppress(TooManyBits, Undecided):
                listed = possible_edges(model, state, found.query, depth)
                edges = [[int(row), [int(p) for p in some]] for row, some in listed]
            panel = {"layer": depth, "when": when, "tokens": state.tokens.tolist()}
            panels.append(panel | {"edges": edges})
    return outline | {"panels": panels}


def states_before(model: jm.Transformer, found: Restriction) -> list[PartialInput]:
    """Partial input under which the search came to each layer."""
    state = PartialInput(found.given, found.symbols)
    left = {stage.name: stage.partial for stage in found.stages}
    states = []
    for depth in range(len(model.layers)):
        states.append(state)
        state = left.get(f"layer {depth}", state)
    return states


def restriction_figure(outline: Mapping[str, Any]) -> "Figure":
    """Figure of an outline as `outline_restriction` makes it: lines, or free shares."""
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
    """Draws one layer under one partial input: lines, positions and rows."""
    tokens, edges = panel["tokens"], panel["edges"]
    places = range(len(tokens))
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
    axes.scatter(places, [0] * len(places), c=shades, **CIRCLE)
    for place, token in zip(places, tokens, strict=True):
        text = "∗" if token == FREE else str(token)
        axes.text(place, 0, text, ha="center", va="center", fontsize=7, zorder=3)
    axes.set_ylim(-0.35, 1.25)
    axes.set_yticks([0, 1], ["input", "output"], fontsize=8)
    axes.set_xticks(places[:: max(1, math.ceil(len(tokens) / 12))])
    axes.tick_params(labelsize=7, length=2)
    axes.spines[:].set_visible(False)


def _shares(n: int, stages: list[Mapping[str, Any]]) -> "Figure":
    """Bars of the free share after each stage, with what each stage does below."""
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
