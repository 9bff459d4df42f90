"""The second panel of a curve: bounds, claims and estimates, in decades.

Constants of the literature leave the range of any axis of influences, and of floats, so
they are drawn as decimal logarithms: linear up to ten decades, logarithmic beyond. A
colour is a weighting, as in the panel above; a mark and dash is a kind of number.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_DECADES = 10

# How each kind of number looks, in the order of the legend.
KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "exact": ("exact", {"linestyle": "-", "linewidth": 1.4}),
    "supremum": ("exact, worst input", {"linestyle": "none", "marker": "*"}),
    "estimate": ("estimated, worst input met", {"linestyle": "none", "marker": "x"}),
    "certified": (
        "certified, these inputs",
        {"linestyle": "none", "marker": "o", "markerfacecolor": "none"},
    ),
    "log10_corrected": (
        "corrected Lemma 5, all inputs",
        {"linestyle": "--", "marker": "^", "linewidth": 0.9},
    ),
    "log10_printed": (
        "Lemma 5 as printed",
        {"linestyle": ":", "marker": "v", "linewidth": 0.9},
    ),
}


@dataclasses.dataclass(frozen=True)
class Decades:
    """One line of the panel.

    Attributes:
        kind: A key of `KINDS`.
        x: Lengths.
        log10: Decimal logarithms.
    """

    kind: str
    x: np.ndarray
    log10: np.ndarray


def draw_bounds(
    axes: "Axes", lines: Sequence[Sequence[Decades]], colours: Sequence[str]
) -> None:
    """Draw the lines of every curve and a legend of their kinds.

    Args:
        axes: The panel.
        lines: Per curve, its lines.
        colours: Per curve.
    """
    from matplotlib.lines import Line2D

    drawn = set()
    for some, colour in zip(lines, colours, strict=True):
        for line in some:
            look = KINDS[line.kind][1]
            axes.plot(line.x, line.log10, color=colour, markersize=4.5, **look)
            drawn.add(line.kind)
    axes.set_yscale("symlog", linthresh=LINEAR_DECADES, linscale=2)
    axes.set_ylabel("log₁₀ of the same")
    handles = [
        Line2D([], [], color="0.3", markersize=4.5, label=name, **look)
        for kind, (name, look) in KINDS.items()
        if kind in drawn
    ]
    axes.legend(handles=handles, frameon=False, fontsize=7, loc="best")
