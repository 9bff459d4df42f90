"""A picture of a restriction: who can attend to whom, layer by layer.

For short inputs each layer has two panels, before its bits were fixed and under the whole
restriction: its input rows below, its output rows above, and a line wherever one can attend
to the other. For long ones the share of free positions after each stage is drawn.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

import jax_models as jm
from bounds.figures import LOOKS
from bounds.restriction.analysis import TooManyBits, possible_edges
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.restriction import Restriction
from bounds.restriction.tabulate import Undecided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Positions that a picture of lines can show legibly.
LEGIBLE = 24


def restriction_figure(model: jm.Transformer, found: Restriction) -> "Figure":
    """Draw a restriction.

    Args:
        model: The transformer.
        found: What was found for it.

    Returns:
        The picture of who can attend to whom for n <= 24, else of free shares.
    """
    if len(found.rho) <= LEGIBLE:
        return _picture(model, found)
    return _shares(found)


def states_before(model: jm.Transformer, found: Restriction) -> list[PartialInput]:
    """Returns the partial input under which the search came to each layer.

    Args:
        model: The transformer.
        found: What was found for it.
    """
    state = PartialInput(found.given, found.symbols)
    left = {stage.name: stage.partial for stage in found.stages}
    states = []
    for depth in range(len(model.layers)):
        states.append(state)
        state = left.get(f"layer {depth}", state)
    return states


def _picture(model: jm.Transformer, found: Restriction) -> "Figure":
    from matplotlib.figure import Figure

    depth, n = len(model.layers), len(found.rho)
    width = max(3.0, 0.28 * n + 0.8)
    figure = Figure(figsize=(2 * width, 1.7 * depth + 0.5), layout="constrained")
    panels = figure.subplots(depth, 2, squeeze=False)
    # The last layer is on top, as in drawings of the model.
    for k, before in enumerate(states_before(model, found)):
        row = panels[depth - 1 - k]
        for axes, state, when in (
            (row[0], before, "before"),
            (row[1], found.partial, "after"),
        ):
            _draw_layer(axes, model, state, found.query, k)
            free = len(state.free)
            axes.set_title(f"layer {k}, {when}: {free} of {n} free", fontsize=9)
    figure.supxlabel(
        "position (counted from 0); ∗ free, grey fixed; a bold line: the only position "
        "that the row can attend to; black square: the query",
        fontsize=8,
    )
    return figure


def _draw_layer(
    axes: "Axes", model: jm.Transformer, state: PartialInput, query: int, depth: int
) -> None:
    """Draw one layer under one partial input: lines, positions and rows."""
    colour = LOOKS[0]["color"]
    places = range(state.length)
    try:
        edges = possible_edges(model, state, query, depth)
    except (TooManyBits, Undecided):
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
    free = state.tokens == FREE
    shades = np.where(free, "white", "0.85")
    circle = {"s": 95, "edgecolors": "black", "linewidths": 0.6, "zorder": 2}
    axes.scatter(places, [0] * len(places), c=shades, **circle)
    for place, token in zip(places, state.tokens, strict=True):
        text = "∗" if token == FREE else str(token)
        axes.text(place, 0, text, ha="center", va="center", fontsize=7, zorder=3)
    axes.set_ylim(-0.35, 1.25)
    axes.set_yticks([0, 1], ["input", "output"], fontsize=8)
    axes.set_xticks(places[:: max(1, math.ceil(state.length / 12))])
    axes.tick_params(labelsize=7, length=2)
    axes.spines[:].set_visible(False)


def _shares(found: Restriction) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    axes = figure.add_subplot()
    n = len(found.rho)
    names = ["given", *(stage.name for stage in found.stages)]
    free = [int((found.given == FREE).sum()), *(stage.free for stage in found.stages)]
    shares = np.array(free) / n
    axes.bar(names, shares, color=LOOKS[0]["color"], width=0.6)
    for place, count in enumerate(free):
        axes.text(
            place, shares[place], str(count), ha="center", va="bottom", fontsize=8
        )
    axes.set_ylim(0, 1.1)
    axes.set_ylabel(f"share of the n = {n} positions that is free")
    axes.set_xlabel("after this stage")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
