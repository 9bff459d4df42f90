"""The second panel of a curve: bounds, claims and estimates, in decades.

Constants of the literature leave the range of any axis of influences, and of floats, so
they are drawn as decimal logarithms: linear up to ten decades, logarithmic beyond. A
colour is a weighting, as in the panel above; a mark and dash is a kind of number.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.gap import Gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_DECADES = 10


@dataclasses.dataclass(frozen=True)
class Decades:
    """One line of the panel.

    Attributes:
        legend: What its kind of number is called; lines of one kind share a name.
        look: Of the kind, as Matplotlib's `plot` takes it.
        x: Lengths.
        log10: Decimal logarithms.
    """

    legend: str
    look: Mapping[str, Any]
    x: np.ndarray
    log10: np.ndarray


def draw_bounds(
    axes: "Axes", lines: Sequence[Sequence[Decades]], colours: Sequence[str]
) -> None:
    """Draw the lines of every curve and a legend of their kinds."""
    from matplotlib.lines import Line2D

    drawn: dict[str, Mapping[str, Any]] = {}
    for some, colour in zip(lines, colours, strict=True):
        for line in some:
            axes.plot(line.x, line.log10, color=colour, markersize=4.5, **line.look)
            drawn[line.legend] = line.look
    axes.set_yscale("symlog", linthresh=LINEAR_DECADES, linscale=2)
    axes.set_ylabel("log₁₀ of the same")
    handles = [
        Line2D([], [], color="0.3", markersize=4.5, label=name, **look)
        for name, look in drawn.items()
    ]
    axes.legend(handles=handles, frameon=False, fontsize=7, loc="best")


def draw_gap(axes: "Axes", gap: Gap, colour: str) -> None:
    """Mark the decades between constant and exact influence, and where the constant bends.

    Args:
        axes: Those of `draw_bounds`.
        gap: Of one curve.
        colour: Of the curve.
    """
    if (decades := gap.decades) is not None:
        ends = (gap.last, gap.corrected - decades), (gap.last, gap.corrected)
        arrow = {"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", *ends, arrowprops=arrow)
        axes.annotate(
            f"{decades:.1f} decades",
            (gap.last, gap.corrected - decades / 2),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    if gap.bend is not None:
        axes.axvline(10**gap.bend, color=colour, linewidth=0.8, linestyle=":", zorder=0)
        axes.annotate(
            "n = 1 + e²ᴬ",
            (10**gap.bend, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=7,
        )
