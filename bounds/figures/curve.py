"""Influence against length, with bounds, claims and estimates of the same quantity.

A colour is a weighting, as of its exact values; a mark and dash is a kind of number. Bounds
far above the values, as constants of the literature are, would press all else into one line:
they are named above the axes with their size instead.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.gap import Gap
from bounds.figures.primitives import (
    BACKDROP,
    COLOURS,
    curves,
    draw_guide,
    draw_values,
    floor_below,
    reduced,
    show_legend,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Share of a value within which another at the same length would lie on its mark.
ALIKE = 0.03
# Decades above the largest exact value beyond which a line is not drawn.
DECADES = 8.0
# Share of the axis of n between an arrow and the values whose distance it marks.
BESIDE = 0.05
BEND = "n = 1 + e²ᴬ, A half the range of a\nrow of logits: bound on a weight 1/2"
# Text upright at the line of a length.
ALONG_A_LENGTH: Mapping[str, Any] = {
    **{"xycoords": ("data", "axes fraction"), "rotation": 90, "ha": "right"},
    **{"color": "0.3", "bbox": BACKDROP},
}
TITLE = "lines: the largest; light marks: every input"


@dataclasses.dataclass(frozen=True)
class Decades:
    """One bound against length, by its logarithm; lines of one kind share legend and look."""

    legend: str
    look: Mapping[str, Any]  # as Matplotlib's `plot` takes it
    x: np.ndarray
    log10: np.ndarray


@dataclasses.dataclass(frozen=True)
class Series:
    """Non-negative values against positions or lengths, of which several may be equal."""

    label: str
    x: np.ndarray
    y: np.ndarray
    bounds: Sequence[Decades] = ()
    gap: Gap | None = None  # of the corrected constant


def curve_figure(
    series: Sequence[Series], quantity: str, trained_to: Sequence[int] = ()
) -> "Figure":
    """Figure of at most `MAX_SERIES` series on logarithmic axes; `quantity` names y.

    Series that are the same everywhere are one line with both names; a thin grey line is
    proportional to 1/n. Lines mark lengths up to which models were trained,
    where these are among those measured.
    """
    series = _merge(series)
    bounded = [(one, c) for one, c in zip(series, COLOURS, strict=False) if one.bounds]
    x, y = (np.concatenate([getattr(one, axis) for one in series]) for axis in "xy")
    floor, positive, height = floor_below(y), y > 0, 5.0 if bounded else 3.6
    with curves(quantity, height=height, floor=floor) as (figure, axes):
        shifts = _shifts(series)
        for k, (one, shift) in enumerate(zip(series, shifts, strict=True)):
            draw_values(axes, one.x * shift, one.y, k, one.label, floor=floor)
        for n in [n for n in trained_to if x.min() <= n <= x.max()]:
            axes.axvline(n, color="0.4", linewidth=0.9, linestyle="-.", zorder=0)
            place, text = (n, 0.02), f"trained to n = {n}"
            write(axes, text, place, (-2, 0), size=7, **ALONG_A_LENGTH)
        lines = [(one.label.partition(" (")[0], c, one.bounds) for one, c in bounded]
        draw_bounds(axes, lines, y.max(initial=0.0) or 1.0)
        # One gap: of the first line whose constant falls, else of the first.
        gaps = [(one.gap, colour) for one, colour in bounded if one.gap is not None]
        for gap, colour in sorted(gaps, key=lambda pair: pair[0].bend is None)[:1]:
            _draw_gap(axes, gap, colour)
        if len(ends := np.unique(x[positive]).astype(float)) > 1:
            first = y[positive & (x == ends[0])].max() * 1.6
            look = {"size": 7, "ha": "left", "bbox": BACKDROP}
            draw_guide(axes, ends[[0, -1]], first, "proportional to 1/n", 0, **look)
        aside = "; what coincides is set side by side" if len({*shifts}) > 1 else ""
        show_legend(figure, title=TITLE + aside)
    return figure


def _merge(series: Sequence[Series]) -> list[Series]:
    """Series with those that are the same everywhere as one, by all their names."""
    groups: dict[Any, list[Series]] = {}
    for one in series:
        groups.setdefault((*one.x.tolist(), *one.y.tolist()), []).append(one)
    merged = []
    for first, *others in groups.values():
        # Their fits are the same too; the first one's stands behind all names.
        name, mark, fit = first.label.partition(" (")
        names = [name, *(one.label.removesuffix(mark + fit) for one in others)]
        bounds = next((one.bounds for one in (first, *others) if one.bounds), ())
        label = " and ".join(names) + mark + fit
        merged.append(dataclasses.replace(first, label=label, bounds=bounds))
    return merged


def _shifts(series: Sequence[Series]) -> list[float]:
    """Factors on n, not 1 for a series with a value that lies on an earlier one's."""
    x = np.concatenate([one.x for one in series])
    step = float(x.max() / x.min()) ** 0.015 if len(x) else 1.0
    places: list[int] = []
    tops = [{*zip(*reduced(one.x, one.y), strict=True)} for one in series]
    zeros = [{(n, 0.0) for n in one.x[one.y == 0]} for one in series]
    marks = [line | floor for line, floor in zip(tops, zeros, strict=True)]
    for mine in marks:
        taken = {
            place
            for place, others in zip(places, marks, strict=False)
            for (n, y), (m, z) in itertools.product(mine, others)
            if n == m and abs(y - z) <= ALIKE * z
        }
        places.append(next(p for p in itertools.count() if p not in taken))
    return [step**place for place in places]


def draw_bounds(
    axes: "Axes", bounded: Sequence[tuple[str, str, Sequence[Decades]]], largest: float
) -> None:
    """Draws the bounds of curves, each with its name and colour, near the largest value.

    Others are named above the axes. A legend has each kind drawn, in grey.
    """
    drawn: dict[str, Mapping[str, Any]] = {}
    far: dict[str, list[str]] = {}
    for k, (name, colour, lines) in enumerate(bounded):
        for line in lines:
            if line.log10.max() > np.log10(largest) + DECADES:
                ends = (f"{x:.0f}" for x in (line.log10.min(), line.log10.max()))
                powers = " to ".join(dict.fromkeys(f"$10^{{{x}}}$" for x in ends))
                said = f"{powers} ({name})" if name else powers
                far.setdefault(line.legend, []).append(said)
                continue
            # Later lines are finer, so that one which coincides with an earlier one shows.
            sizes = {"linewidth": 1.6 / (k + 1), "markersize": 6.5 - 1.5 * min(k, 3)}
            look = {**sizes, **line.look}
            axes.plot(line.x, 10.0**line.log10, color=colour, **look)
            drawn[line.legend] = line.look
    words = [f"beyond the axis, {kind}: {', '.join(s)}" for kind, s in far.items()]
    axes.set_title("\n".join(words), fontsize=7, color="0.3", loc="left")
    for kind, look in drawn.items():
        axes.plot([], [], color="0.3", label=kind, **{"markersize": 5, **look})


def _draw_gap(axes: "Axes", gap: Gap, colour: str) -> None:
    """Marks the decades from exact to constant, and the bend where it is known."""
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
