"""A picture of a restriction: who can attend to whom, layer by layer.

For short inputs each layer has two panels, before its bits were fixed and under the whole
restriction: its input rows below, its output rows above, and a line wherever one can attend
to the other. For long ones the share of free positions after each stage is drawn. What is
drawn is found by `outline_restriction`; to draw it takes no model.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import jax_models as jm
from bounds.curves.figures import LOOKS
from bounds.restriction.analysis import TooManyBits, possible_edges
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.restriction import Restriction
from bounds.restriction.tabulate import Undecided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What each stage of a search does, for those that are drawn.
STAGES = {
    "given": "before the search",
    "layer": "bits are fixed until each row of that layer depends on few",
    "alteration": "bits are fixed at random, then repaired",
    "closing": "bits are fixed until the query's output is constant",
    "reverse pass": "fixed bits that are not needed are freed again",
}
# Positions that a picture of lines can show legibly.
LEGIBLE = 24


def outline_restriction(model: jm.Transformer, found: Restriction) -> dict[str, Any]:
    """Returns what a picture of a restriction shows, in JSON types.

    Returns:
        Length `n` and position `query`; for n <= 24 `panels`, of every layer one before
        and one after, each with `tokens` and `edges` (a row and the positions that it
        can attend to; None where it depends on too much); else `stages`, each with its
        name and the number of positions that are `free` after it.
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


def restriction_figure(outline: Mapping[str, Any]) -> "Figure":
    """Draw a restriction.

    Args:
        outline: What `outline_restriction` returned.

    Returns:
        The picture of who can attend to whom for n <= 24, else of free shares.
    """
    return _picture(outline) if "panels" in outline else _shares(outline)


def states_before(model: jm.Transformer, found: Restriction) -> list[PartialInput]:
    """Returns the partial input under which the search came to each layer."""
    state = PartialInput(found.given, found.symbols)
    left = {stage.name: stage.partial for stage in found.stages}
    states = []
    for depth in range(len(model.layers)):
        states.append(state)
        state = left.get(f"layer {depth}", state)
    return states


def _picture(outline: Mapping[str, Any]) -> "Figure":
    from matplotlib.figure import Figure

    n, panels = outline["n"], outline["panels"]
    depth = len(panels) // 2
    width = max(3.0, 0.19 * n + 0.6)  # n = 14 is as wide as a page's text
    figure = Figure(figsize=(2 * width, 1.7 * depth + 0.5), layout="constrained")
    grid = figure.subplots(depth, 2, squeeze=False)
    # The last layer is on top, as in drawings of the model.
    for axes, panel in zip(grid[::-1].flat, panels, strict=True):
        _draw_layer(axes, panel, outline["query"])
        free = panel["tokens"].count(FREE)
        title = f"layer {panel['layer']}, {panel['when']}: {free} of {n} free"
        axes.set_title(title, fontsize=9)
    figure.supxlabel(
        "position (from 0, as layers). Circles: ∗ free, grey fixed. Squares: rows that the "
        "query can depend on;\nblack: the query. Lines: where a row can attend to; bold: "
        "nowhere else. Before: as the search came\nto the layer. After: the whole "
        "restriction; more was fixed then, and what needlessly had been is free again.",
        fontsize=8,
    )
    return figure


def _draw_layer(axes: "Axes", panel: Mapping[str, Any], query: int) -> None:
    """Draw one layer under one partial input: lines, positions and rows."""
    colour = LOOKS[0]["color"]
    tokens, edges = panel["tokens"], panel["edges"]
    places = range(len(tokens))
    if edges is None:
        edges = []
        axes.text(
            0.5, 0.5, "depends on too much", transform=axes.transAxes, ha="center"
        )
    for row, reached in edges:
        alone = len(reached) == 1
        for position in reached:
            axes.plot(
                [position, row],
                [0, 1],
                color=colour,
                linewidth=1.2 if alone else 0.5,
                alpha=0.9 if alone else 0.4,
                zorder=1,
            )
        look = {"s": 22, "color": "black" if row == query else "0.5", "zorder": 2}
        axes.scatter([row], [1], marker="s", **look)
    shades = ["white" if token == FREE else "0.85" for token in tokens]
    circle = {"s": 70, "edgecolors": "black", "linewidths": 0.6, "zorder": 2}
    axes.scatter(places, [0] * len(places), c=shades, **circle)
    for place, token in zip(places, tokens, strict=True):
        text = "∗" if token == FREE else str(token)
        axes.text(place, 0, text, ha="center", va="center", fontsize=7, zorder=3)
    axes.set_ylim(-0.35, 1.25)
    axes.set_yticks([0, 1], ["input", "output"], fontsize=8)
    axes.set_xticks(places[:: max(1, math.ceil(len(tokens) / 12))])
    axes.tick_params(labelsize=7, length=2)
    axes.spines[:].set_visible(False)


def _any_begins(names: list[str], kind: str) -> bool:
    return any(name.startswith(kind) for name in names)


def _shares(outline: Mapping[str, Any]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    n, stages = outline["n"], outline["stages"]
    names, free = ([one[key] for one in stages] for key in ("name", "free"))
    shares = np.array(free) / n
    axes.bar(names, shares, color=LOOKS[0]["color"], width=0.6)
    for place, count in enumerate(free):
        axes.text(
            place, shares[place], str(count), ha="center", va="bottom", fontsize=8
        )
    axes.set_ylim(0, 1.1)
    axes.set_ylabel(f"free share of n = {n} positions")
    axes.set_xlabel("after this stage (above a bar: how many are free)")
    met = {kind: said for kind, said in STAGES.items() if _any_begins(names, kind)}
    text = "\n".join(f"{kind}: {said}" for kind, said in met.items())
    figure.supxlabel(text, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
