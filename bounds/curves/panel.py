"""What stands beside the exact influences of a figure: bounds, claims and estimates.

A colour is a weighting, as of its exact values; a mark and dash is a kind of number. What
lies far above, as constants of the literature do, would press all else into one line: it is
named above the axes with its size instead.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.gap import Gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Decades above the largest exact value beyond which a line is not drawn.
DECADES = 8.0
# Share of the axis of n that an arrow stands beside what it measures.
BESIDE = 0.05
BEND = "n = 1 + e²ᴬ, A half the range of a\nrow of logits: bound on a weight 1/2"


@dataclasses.dataclass(frozen=True)
class Decades:
    """One line of a figure.

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
    axes: "Axes",
    lines: Mapping[str, Sequence[Decades]],
    colours: Sequence[str],
    largest: float,
) -> list[Any]:
    """Draw the lines that are near, and name the others above the axes.

    Args:
        axes: With logarithmic axes.
        lines: By the name of their curve.
        colours: Of the curves.
        largest: Of the exact values.

    Returns:
        A handle for a legend of each kind that is drawn.
    """
    from matplotlib.lines import Line2D

    drawn: dict[str, Mapping[str, Any]] = {}
    far: dict[str, list[str]] = {}
    top = np.log10(largest) + DECADES
    for k, ((name, some), colour) in enumerate(
        zip(lines.items(), colours, strict=True)
    ):
        for line in some:
            if line.log10.max() > top:
                low, high = f"{line.log10.min():.0f}", f"{line.log10.max():.0f}"
                powers = dict.fromkeys(f"$10^{{{x}}}$" for x in (low, high))
                said = f"{' to '.join(powers)} ({name})"
                far.setdefault(line.legend, []).append(said)
                continue
            # Later lines are finer, so that one which coincides with an earlier one shows.
            sizes = {"linewidth": 1.6 / (k + 1), "markersize": 6.5 - 1.5 * min(k, 3)}
            look = {**sizes, **line.look}
            axes.plot(line.x, 10.0**line.log10, color=colour, **look)
            drawn[line.legend] = line.look
    if far:
        said = [f"{kind}: {', '.join(some)}" for kind, some in far.items()]
        text = "\n".join(f"beyond the axis, {one}" for one in said)
        axes.set_title(text, fontsize=7, color="0.3", loc="left")
    return [
        Line2D([], [], color="0.3", label=kind, **{"markersize": 5, **look})
        for kind, look in drawn.items()
    ]


def draw_gap(axes: "Axes", gap: Gap, colour: str) -> list[Any]:
    """Mark the decades between constant and exact influence, and where the constant bends.

    Args:
        axes: Those of `draw_bounds`.
        gap: Of one curve.
        colour: Of the curve.

    Returns:
        A handle for a legend of the bend, where it is drawn.
    """
    from matplotlib.lines import Line2D

    if (decades := gap.decades) is not None and decades <= DECADES:
        low, high = gap.corrected - decades, gap.corrected
        # Beside the marks, which would hide its heads, between lines that lead to them.
        left, right = axes.get_xlim()
        place = gap.last * (right / left) ** BESIDE
        for level in (10.0**low, 10.0**high):
            axes.plot([gap.last, place], [level] * 2, color=colour, linewidth=0.6)
        arrow = {"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (place, 10.0**low), (place, 10.0**high), arrowprops=arrow)
        axes.annotate(
            f"{decades:.1f} decades",
            (place, 10.0 ** ((low + high) / 2)),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    if gap.bend is None:
        return []
    look = {"color": colour, "linewidth": 0.8, "linestyle": ":"}
    axes.axvline(10**gap.bend, zorder=0, **look)
    return [Line2D([], [], label=BEND, **look)]
