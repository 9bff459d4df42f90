"""Figures: influence against length, and along one input.

They take rows as a store holds them, never a model. Logarithmic axes have no zero, so
values that are exactly zero stand as open marks on a floor line labelled 0. Lines
differ in marker and dash as well as colour, to be told apart in grey print. Matplotlib
is imported where a figure is drawn, and without its global state.
"""

import dataclasses
import io
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.gap import Gap
from bounds.curves.panel import Decades, draw_bounds, draw_gap
from bounds.curves.ticks import label_logarithms
from bounds.store.output import write_bytes
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")

# Share of a value within which another at the same length would lie on its mark.
ALIKE = 0.03

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 2)))
# How the lines of one figure look, in order.
LOOKS = tuple(
    {"color": colour, "marker": marker, "linestyle": dash}
    for colour, marker, dash in zip(_COLOURS, _MARKERS, _DASHES, strict=True)
)
MAX_SERIES = len(LOOKS)
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}
SMALL_LEGEND: dict[Any, Any] = {**STYLE, "legend.fontsize": 7.5}


@dataclasses.dataclass(frozen=True)
class Series:
    """Values against positions or lengths, one line of a figure.

    Attributes:
        label: Its name in the legend.
        x: Lengths or positions; several values may share one.
        y: Non-negative values.
        bounds: What stands beside them, in decades.
        gap: How far the corrected constant is from them, and where it begins to fall.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    bounds: tuple[Decades, ...] = ()
    gap: Gap | None = None


def curve_figure(series: Sequence[Series], quantity: str) -> "Figure":
    """Draw influence against length on logarithmic axes.

    Each series is a line through the largest of its non-zero values at each length, with
    every value as a light mark; series that are the same everywhere are one line with both
    names. A thin grey line shows what is proportional to 1/n. What stands beside the values
    is drawn where it is within some decades of them, and named above the axes elsewhere.

    Args:
        series: At most `MAX_SERIES`, so that no two look alike.
        quantity: What the values are, with their unit: the label of the y axis.

    Returns:
        The figure, one column of a paper wide.
    """
    from matplotlib import rc_context

    series = _merged(series)
    bounded = [one for one in series if one.bounds]
    with rc_context(STYLE):
        figure, axes = _empty_figure(height=5.0 if bounded else 3.6)
        axes.set_xscale("log")
        axes.set_yscale("log")
        floor = _floor(series)
        aside = _aside(series)
        for index, one in enumerate(series):
            _draw_series(axes, one, index, floor, aside[index])
        colours = [c for c, one in zip(_COLOURS, series, strict=False) if one.bounds]
        top = max((one.y.max(initial=0.0) for one in series), default=0.0) or 1.0
        lines = {one.label.partition(" (")[0]: one.bounds for one in bounded}
        kinds = draw_bounds(axes, lines, colours, top)
        # One gap: of the first line whose constant falls, else of the first.
        pairs = zip(bounded, colours, strict=True)
        gaps = [(one.gap, c) for one, c in pairs if one.gap is not None]
        for gap, colour in sorted(gaps, key=lambda pair: pair[0].bend is None)[:1]:
            kinds += draw_gap(axes, gap, colour)
        _draw_slope(axes, series)
        _label_ticks(axes, floor, series)
        axes.set_xlabel("length n (tokens)")
        axes.set_ylabel(quantity)
        title = "lines: the largest; light marks: every input"
        if len(set(aside)) > 1:
            title += "; what coincides is set side by side"
        handles, _ = axes.get_legend_handles_labels()
        figure.legend(
            handles=[*handles, *kinds],
            loc="outside lower center",
            ncols=2,
            frameon=False,
            title=title,
            title_fontsize=8,
        )
    return figure


def _merged(series: Sequence[Series]) -> list[Series]:
    """Returns series with those that are the same everywhere as one, by both names."""
    found: list[Series] = []
    for one in series:
        for k, other in enumerate(found):
            if np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y):
                # What was fitted is the same too, and is said once, behind the names.
                name, mark, fitted = other.label.partition(" (")
                label = (
                    f"{name} and {one.label.removesuffix(mark + fitted)}{mark}{fitted}"
                )
                bounds = other.bounds or one.bounds
                found[k] = dataclasses.replace(other, label=label, bounds=bounds)
                break
        else:
            found.append(one)
    return found


def _aside(series: Sequence[Series]) -> list[float]:
    """Returns by what factor each series is moved along n, to show beside the others.

    That is 1, but for one with a value of an earlier one, which would lie on it.
    """
    x = np.concatenate([one.x for one in series])
    step = float(x.max() / x.min()) ** 0.015 if len(x) else 1.0
    places: list[int] = []
    marks = [{*zip(*largest(one.x, one.y), strict=True)} for one in series]
    marks = [
        there | {(n, 0.0) for n in one.x[one.y == 0]}
        for there, one in zip(marks, series, strict=True)
    ]
    for k, mine in enumerate(marks):
        taken = {
            places[j]
            for j in range(k)
            for (n, y), (m, z) in itertools.product(mine, marks[j])
            if n == m and abs(y - z) <= ALIKE * z
        }
        places.append(next(p for p in range(k + 1) if p not in taken))
    return [step**place for place in places]


def influence_figure(series: Series, quantity: str, query: int | None) -> "Figure":
    """Draw the influence of every position of one input.

    Args:
        series: Positions and the largest influence there over the symbols.
        quantity: The label of the y axis.
        query: The position that is read, marked by a vertical line; None where it is
            none.

    Returns:
        The figure.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _empty_figure(height=3.0)
        axes.set_yscale("log")
        floor = _floor([series])
        positive = series.y > 0
        style: dict[str, Any] = {"markersize": 3, "linestyle": "none"}
        axes.plot(
            series.x[positive], series.y[positive], "o", color=_COLOURS[0], **style
        )
        if not positive.all():
            axes.plot(
                series.x[~positive],
                np.full(int(np.sum(~positive)), floor),
                "o",
                color=_COLOURS[0],
                markerfacecolor="white",
                **style,
            )
        _label_ticks(axes, floor, [series])
        if query is not None:
            mark_query(axes, query, fontsize=8)
        axes.set_xlabel("position (counted from 0)")
        axes.set_ylabel(quantity)
    return figure


def mark_query(axes: "Axes", query: int, fontsize: float) -> None:
    """Draw a line at the position that is read, behind the values, with its name above.

    Args:
        axes: Of positions.
        query: The position.
        fontsize: Of the name.
    """
    axes.axvline(query, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    axes.annotate(
        "query",
        (query, 1.0),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=fontsize,
    )


def save_figure(
    figure: "Figure", stem: str | os.PathLike[str], formats: Sequence[str]
) -> list[Path]:
    """Write a figure in each of several formats, atomically.

    Args:
        figure: The figure.
        stem: Path of the files, without the suffix.
        formats: Some of "png", "pdf" and "svg".

    Returns:
        The files written.

    Raises:
        OSError: A file cannot be written.
    """
    from matplotlib import rc_context

    paths = []
    for suffix in formats:
        image = io.BytesIO()
        with rc_context(STYLE):
            figure.savefig(image, format=suffix, dpi=300, bbox_inches="tight")
        paths.append(Path(f"{os.fspath(stem)}.{suffix}"))
        write_bytes(paths[-1], image.getvalue())
    return paths


def save_as_named(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure in the format that a file's suffix names.

    Args:
        figure: The figure.
        path: The file.

    Raises:
        InputError: The suffix names no such format.
        OSError: The file cannot be written.
    """
    stem, suffix = os.path.splitext(os.fspath(path))
    if suffix[1:] not in FORMATS:
        raise InputError(f"{os.fspath(path)}: figures are {', '.join(FORMATS)} files")
    save_figure(figure, stem, [suffix[1:]])


def largest(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct entries of x and the largest of y at each.

    Args:
        x: Keys [k].
        y: Values [k].
    """
    keys = np.unique(x)
    return keys, np.array([y[x == key].max() for key in keys])


def _empty_figure(height: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, height), layout="constrained")
    return figure, figure.add_subplot()


def _draw_series(
    axes: "Axes", series: Series, index: int, floor: float, aside: float
) -> None:
    """Draw one line of a curve, its single values, and its zeros on the floor."""
    positive = series.y > 0
    x, y = series.x[positive] * aside, series.y[positive]
    look: dict[str, Any] = LOOKS[index]
    mark = {**look, "linestyle": "none"}
    axes.plot(x, y, markersize=3, alpha=0.35, **mark)
    axes.plot(
        *largest(x, y),
        # Later lines are finer, so that one which coincides with an earlier one shows.
        linewidth=2.4 - 0.25 * index,
        markersize=7.5 - 0.75 * index,
        label=series.label,
        **look,
    )
    zeros = np.unique(series.x[~positive])
    axes.plot(
        zeros * aside,
        np.full(len(zeros), floor),
        markersize=5,
        markerfacecolor="white",
        **mark,
    )


def _draw_slope(axes: "Axes", series: Sequence[Series]) -> None:
    """Draw a guide of slope -1 below the last series' first values."""
    x = np.concatenate([one.x for one in series])
    y = np.concatenate([one.y for one in series])
    x, y = x[y > 0], y[y > 0]
    if len(np.unique(x)) < 2:
        return
    ends = np.array([x.min(), x.max()], float)
    guide = y[x == x.min()].max() * 1.6 * ends[0] / ends
    axes.plot(ends, guide, color="0.6", linewidth=0.8, zorder=0)
    axes.annotate(
        "proportional to 1/n",
        (ends[0], guide[0]),
        color="0.4",
        fontsize=7,
        va="bottom",
        # Readable where a line that belongs to something else goes through.
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
    )


def _floor(series: Sequence[Series]) -> float:
    """Returns where zeros are drawn: a decade or so under the least other value."""
    positive = np.concatenate([one.y[one.y > 0] for one in series])
    return (
        float(10.0 ** (np.floor(np.log10(positive.min())) - 0.6))
        if len(positive)
        else 0.1
    )


def draw_floor(axes: "Axes", floor: float) -> None:
    """Draw the line on which values stand that are zero, and label it 0."""
    axes.axhline(floor, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axes.annotate(
        "0",
        (0.0, floor),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
    )


def _label_ticks(axes: "Axes", floor: float, series: Sequence[Series]) -> None:
    """Label the ticks, and draw the floor, labelled 0, where any value stands on it."""
    if all(np.all(one.y > 0) for one in series):
        label_logarithms(axes)
        return
    draw_floor(axes, floor)
    top = axes.get_ylim()[1]
    # No ticks around the floor, where the axis is no longer logarithmic.
    low = min(one.y[one.y > 0].min(initial=np.inf) for one in series)
    lowest = min(low, 10 * floor)
    label_logarithms(axes, lowest)
    for minor in (False, True):
        ticks = axes.get_yticks(minor=minor)
        axes.set_yticks(ticks[ticks >= lowest], minor=minor)
    axes.set_ylim(floor / 2, top)
