"""A figure of one input's influences under the names of its symbols, in rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds.curves.figures import LOOKS, STYLE, Series, mark_query
from bounds.curves.ticks import label_logarithms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Positions of one row, of letters and of longer names.
LETTERS, WORDS = 64, 40
WIDTH = 7.2
# Decades from the largest influence beyond which smaller ones lie on the floor.
DECADES = 6
LONGEST = 12
# Matplotlib's font has Latin letters, and what stands for a space in some vocabularies.
LAST_LETTER, SPACE, BOX = "\u024f", "\u2581", "\u25a1"


def sequence_figure(
    series: Series,
    names: Sequence[str],
    substitutes: Sequence[str],
    quantity: str,
    query: int | None,
) -> "Figure":
    """Draw the largest influence of every position under the symbol that stands there.

    Args:
        series: Increasing positions, and the largest influence there.
        names: Of the symbol at every position [n].
        substitutes: Of the symbol that makes the largest change, for each of the series.
        quantity: The label of the y axis.
        query: The position that is read, marked; None where it is none.

    Returns:
        The figure, a page wide.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names, substitutes = [*map(drawable, names)], [*map(drawable, substitutes)]
    shown = [names[position] for position in series.x]
    letters = max(map(len, [*shown, *substitutes]), default=1) == 1
    ends = [*series.x.tolist(), *([] if query is None else [query])] or [0]
    first, last = min(ends), max(ends)
    across = min(LETTERS if letters else WORDS, last - first + 1)
    rows = -(-(last - first + 1) // across)
    top = float(series.y.max(initial=0)) or 1.0
    floor = max(float(series.y[series.y > 0].min(initial=top)), top * 10.0**-DECADES)
    with rc_context(STYLE):
        height = (1.3 if letters else 1.9) * max(rows, 2 if letters else 1) + 0.6
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels = figure.subplots(rows, squeeze=False)[:, 0]
        for row, axes in enumerate(panels):
            start = first + row * across
            axes.set_xlim(start - 0.7, start + across - 0.3)
            axes.set_yscale("log")
            axes.set_ylim(floor / 2, top * (2.5 if letters else 8))
            inside = (series.x >= start) & (series.x < start + across)
            chosen = np.flatnonzero(inside)
            _draw_row(axes, series, chosen, substitutes, floor, letters)
            name_positions(
                axes, range(start, min(start + across, last + 1)), names, letters
            )
            label_logarithms(axes)
            if query is not None and start <= query < start + across:
                mark_query(axes, query, fontsize=7)
        figure.supylabel(quantity, fontsize=9)
        below = "" if letters else f" (positions from {first})"
        figure.supxlabel(
            f"symbol{below}; on each line the substitute that changes most", fontsize=9
        )
    return figure


def drawable(name: str) -> str:
    """A name in letters that the font has, of no more than a dozen."""
    drawn = "".join(x if x <= LAST_LETTER or x == SPACE else BOX for x in name)
    return drawn if len(drawn) <= LONGEST else f"{drawn[: LONGEST - 1]}…"


def name_positions(
    axes: "Axes", positions: range, names: list[str], letters: bool
) -> None:
    """Write the symbols below a row, and every tenth position below letters.

    Args:
        axes: Of positions.
        positions: Of the row.
        names: Of the symbol at every position of the input.
        letters: Whether most are of one letter; then longer ones are left out.
    """
    # Names of special symbols would stand across their neighbours.
    labels = [names[p] if len(names[p]) == 1 or not letters else "" for p in positions]
    rotation = 0 if letters else 90
    axes.set_xticks(positions, labels, rotation=rotation, parse_math=False)
    axes.tick_params(axis="x", length=0, labelsize=7 if letters else 6.5)
    for position in [p for p in positions if letters and p % 10 == 0]:
        axes.annotate(
            str(position),
            (position, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -12),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=6,
            color="0.4",
        )


def _draw_row(
    axes: "Axes",
    series: Series,
    chosen: np.ndarray,
    substitutes: list[str],
    floor: float,
    letters: bool,
) -> None:
    """Draw a line up to each value, and the substitute's name on it."""
    look = LOOKS[0]["color"]
    bottom = axes.get_ylim()[0]
    for at in chosen:
        position, value = int(series.x[at]), float(series.y[at])
        seen = value >= floor
        height = value if seen else floor
        axes.plot(
            [position],
            [height],
            "o",
            color=look,
            markersize=2.5,
            markerfacecolor=look if seen else "white",
        )
        if seen:
            axes.vlines(position, bottom, height, color=look, linewidth=0.9)
        axes.annotate(
            substitutes[at],
            (position, height),
            xytext=(0, 2.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=6,
            rotation=0 if letters else 90,
            parse_math=False,
        )
