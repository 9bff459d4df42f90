"""Influence against length, with bounds, claims and estimates of the same quantity.

A colour is a weighting, as of its exact values; a mark and dash is a kind of number.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.series import Gap, Series, free_places, merge
from bounds.figures.primitives import (
    BACKDROP,
    COLOURS,
    GUIDE,
    curves,
    draw_rule,
    draw_values,
    floor_below,
    show_legend,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Decades above the largest exact value beyond which a line is not drawn.
DECADES = 8.0
# Shares of the axis of n between marks that would coincide, and between an arrow and the
# values whose distance it marks.
ASIDE, BESIDE = 0.015, 0.05
BEND = "n = 1 + e²ᴬ, A half the range of a\nrow of logits: bound on a weight 1/2"


def curve_figure(
    series: Sequence[Series], quantity: str, trained_to: Sequence[int] = ()
) -> "Figure":
    """Figure of at most `MAX_SERIES` series on logarithmic axes; `quantity` names y."""
    # Equal series are one line with both names.
    series = merge(series)
    bounded = [(one, c) for one, c in zip(series, COLOURS, strict=False) if one.bounds]
    x, y = (np.concatenate([getattr(one, axis) for one in series]) for axis in "xy")
    floor, height, places = floor_below(y), 5.0 if bounded else 3.6, free_places(series)
    with curves(quantity, height=height, floor=floor) as (figure, axes):
        step = float(x.max() / x.min()) ** ASIDE if len(x) else 1.0
        for k, (one, place) in enumerate(zip(series, places, strict=True)):
            draw_values(axes, one.x * step**place, one.y, k, one.label, floor=floor)
        upright = {"rotation": 90, "ha": "right", "color": "0.3", "bbox": BACKDROP}
        # Upright lines mark lengths within those measured.
        for n in [n for n in trained_to if x.min() <= n <= x.max()]:
            look = {"end": 0.02, "dash": "-.", "size": 7, "offset": (-2, 0), **upright}
            draw_rule(axes, f"trained to n = {n}", n, **look)
        _draw_bounds(axes, bounded, y.max(initial=0.0) or 1.0)
        # One gap: of the first line whose constant falls, else of the first.
        gaps = [(one.gap, colour) for one, colour in bounded if one.gap is not None]
        for gap, colour in sorted(gaps, key=lambda pair: pair[0].bend is None)[:1]:
            _draw_gap(axes, gap, colour)
        if len(lengths := np.unique(x[y > 0]).astype(float)) > 1:
            ends, level = lengths[[0, -1]], y[(x == lengths[0]) & (y > 0)]
            # Bounds that stand alone lie above the values: the line then goes below.
            apart = any(one.bounds and not one.x.size for one in series)
            first = level.min() / 1.6 if apart else 1.6 * level.max()
            # A thin grey line is proportional to 1/n.
            axes.plot(ends, first * ends[0] / ends, **GUIDE)
            look = {"size": 7, "ha": "left", "color": "0.4", "bbox": BACKDROP}
            look |= {"offset": (0, -8), "va": "top"} if apart else {}
            write(axes, "proportional to 1/n", (ends[0], first), **look)
        several = any(len(np.unique(one.x)) < len(one.x) for one in series)
        notes = ["lines: the largest; light marks: every input"] if several else []
        notes += ["what coincides is set side by side"] if any(places) else []
        show_legend(figure, title="; ".join(notes))
    return figure


def _draw_bounds(
    axes: "Axes", bounded: Sequence[tuple[Series, str]], largest: float
) -> None:
    """Draws bounds near the largest value; names bounds far above it in the title."""
    drawn: dict[str, Mapping[str, Any]] = {}
    far: dict[str, list[str]] = {}
    for k, (one, colour) in enumerate(bounded):
        for line in one.bounds:
            # A bound far above the values would press all else into one line.
            if line.log10.max() > np.log10(largest) + DECADES:
                ends = (f"{x:.0f}" for x in (line.log10.min(), line.log10.max()))
                powers = " to ".join(dict.fromkeys(f"$10^{{{x}}}$" for x in ends))
                name = one.label.partition(" (")[0]
                words = f"{powers} ({name})" if name else powers
                far.setdefault(line.legend, []).append(words)
                continue
            # Later lines are finer, so that one which coincides with an earlier one shows.
            sizes = {"linewidth": 1.6 / (k + 1), "markersize": 6.5 - 1.5 * min(k, 3)}
            look = {"color": colour, **sizes, **line.look}
            axes.plot(line.x, 10.0**line.log10, **look)
            drawn[line.legend] = line.look
    titles = [f"beyond the axis, {kind}: {', '.join(s)}" for kind, s in far.items()]
    axes.set_title("\n".join(titles), fontsize=7, color="0.3", loc="left")
    for kind, look in drawn.items():
        axes.plot([], [], label=kind, **{"color": "0.3", "markersize": 5, **look})


def _draw_gap(axes: "Axes", gap: Gap, colour: str) -> None:
    """Marks the decades between exact value and constant, and n where it begins to fall."""
    if (decades := gap.decades) is not None and decades <= DECADES:
        low, high = gap.corrected - decades, gap.corrected
        # Beside the marks, which would hide its heads, between lines that lead to them.
        left, right = axes.get_xlim()
        place = gap.last * (right / left) ** BESIDE
        for level in (10.0**low, 10.0**high):
            axes.plot([gap.last, place], [level] * 2, color=colour, linewidth=0.6)
        arrow = {"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (place, 10.0**low), (place, 10.0**high), arrowprops=arrow)
        middle = (place, 10.0 ** ((low + high) / 2))
        beside = {"size": 7, "ha": "left", "va": "center"}
        write(axes, f"{decades:.1f} decades", middle, (5, 0), **beside)
    if gap.bend is not None:
        look = {"color": colour, "linewidth": 0.8, "linestyle": ":", "label": BEND}
        axes.axvline(10**gap.bend, zorder=0, **look)
